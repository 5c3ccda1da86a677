"""`pidgate doctor`: ticks for a file before the start, and for running gateways, with cause, remedy and page."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pidgate.cli.admin_client import BadUsage, Failed, Gateway, gateways
from pidgate.cli.health import answer_at
from pidgate.cli.options import USAGE_ERROR, DoctorOptions
from pidgate.doctor import bundle
from pidgate.doctor.findings import Checks, Finding, Start, exit_code, lines, unasked, warning
from pidgate.doctor.running import Answers, check_running, verdict
from pidgate.gateway.config.source import ConfigError, read_yaml
from pidgate.version import version

if TYPE_CHECKING:
    from pidgate.gateway.config.settings import Settings
    from pidgate.gateway.config.source import Source


def doctor(options: DoctorOptions) -> int:
    """Check the file, and the gateways that run; print the findings; return the exit code."""
    doctor = Doctor(options)
    try:
        doctor.check()
        if options.bundle is not None:
            bundle.write(options.bundle, doctor.parts())
    except (BadUsage, ConfigError, OSError) as error:
        print(f"pidgate doctor: {error}", file=sys.stderr)
        return USAGE_ERROR
    doctor.show()
    return exit_code(doctor.findings)


class Doctor:
    """One run of the command."""

    def __init__(self, options: DoctorOptions) -> None:
        self._options = options
        self._verdicts: dict[str, str] = {}
        self._parts: dict[str, str] = {}
        self.findings: list[Finding] = []

    def check(self) -> None:
        """Make all checks. Raises BadUsage, ConfigError."""
        options = self._options
        if options.config is None:
            for gateway in gateways(options):
                self._running(gateway, is_asked=True)
            return
        from pidgate.gateway.config.loading import checked

        source = read_yaml(options.config)
        self._parts["config.yaml"] = bundle.config_text(source.data)
        settings = checked(source)
        found = gateways(options)
        is_own = not options.admin
        own_runs = is_own and answer_at(found[0].at, "/livez")[0]
        self._before(options.config, settings, source, is_running=own_runs)
        for gateway in found:
            if not is_own or own_runs:
                self._running(gateway, is_asked=not is_own)

    def _before(self, file: Path, settings: Settings, source: Source, *, is_running: bool) -> None:
        # Their imports take longer than the question to a running gateway.
        from pidgate.cli import checking
        from pidgate.doctor.brokers import BrokerChecks
        from pidgate.doctor.machine import check_machine

        checks = Checks(f"before the start, {file}")
        problems = [warning(text) for text in checking.file_warnings(settings, source)]
        checks.add("the file is valid", Start.FILE, problems)
        check_machine(checks, settings, is_running=is_running)
        asyncio.run(BrokerChecks(checks, settings).run())
        self.findings += checks.findings

    def _running(self, gateway: Gateway, *, is_asked: bool) -> None:
        checks = Checks(f"gateway at {gateway.address}")
        try:
            is_alive, text = answer_at(gateway.at, "/livez") if is_asked else (True, "")
            if not is_alive:
                raise Failed(text)
            self._ask(gateway, checks)
        except (Failed, BadUsage) as error:
            text, _, remedy = str(error).partition("; ")
            remedy = (
                remedy or "start it, or name the admin address of a running gateway with --admin HOST:PORT"
            )
            checks.add("the gateway answers", Start.ADMIN, [unasked(text, remedy)])
        self.findings += checks.findings

    def _ask(self, gateway: Gateway, checks: Checks) -> None:
        name = f"gateway-{gateway.address}".replace(":", "-")
        first = gateway.get("/v1/present", view="first")
        around = gateway.get("/v1/present", view="around")
        waiting = gateway.get("/v1/explain")
        metrics = gateway.text("/metrics")
        answers = Answers(first, around, waiting, _samples(metrics))
        check_running(checks, answers)
        self._verdicts[str(gateway.address)] = verdict(answers)
        for part, content in (("first", first), ("around", around), ("waiting", waiting)):
            self._parts[f"{name}/{part}.json"] = json.dumps(content, indent=2)
        self._parts[f"{name}/metrics.txt"] = metrics
        ready = "ready" if first["head"]["is_ready"] else f"not ready: {first['head']['not_ready']}"
        self._parts[f"{name}/readyz.txt"] = f"{ready}\n"

    # ---- output ----------------------------------------------------------------------------------------

    def as_json(self) -> dict[str, Any]:
        return {
            "version": version(),
            "exit_code": exit_code(self.findings),
            "verdicts": self._verdicts,
            "findings": [dataclasses.asdict(finding) for finding in self.findings],
        }

    def parts(self) -> dict[str, str]:
        """Return what goes into a bundle, by name."""
        return {"doctor.json": json.dumps(self.as_json(), indent=2), **self._parts}

    def show(self) -> None:
        if self._options.as_json:
            print(json.dumps(self.as_json(), indent=2))
            return
        is_plain = (sys.stdout.encoding or "").lower() not in ("utf-8", "utf8")
        for line in lines(self.findings, is_plain=is_plain):
            print(line)
        for address, text in self._verdicts.items():
            print(f"{address}: {text}")
        if self._options.bundle is not None:
            print(f"{self._options.bundle} holds this, metrics and state, without passwords and tokens.")


def _samples(metrics: str) -> dict[tuple[str, str], float]:
    from prometheus_client.parser import text_string_to_metric_families

    return {
        (sample.name, "".join(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(metrics)
        for sample in family.samples
        if len(sample.labels) <= 1
    }
