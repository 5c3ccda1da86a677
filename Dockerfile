# pidgate as an image: everything pinned by hash; at run time Python and one folder, no shell and no compiler.
#
#   docker build -t pidgate .
#   docker run --read-only --tmpfs /tmp -v ./pidgate.yaml:/etc/pidgate/pidgate.yaml:ro \
#     -p 9292:9292 -p 9300-9305:9300-9305 pidgate
#
# Inside a container `bind` has to be 0.0.0.0:PORT and `advertise` the name by which clients reach the host.
#
# BUILD is any image with CPython 3.11, its headers, venv and a C compiler; BASE any with CPython 3.11 as `python3.11`
# and a C library that is not older. deploy/image/roots.sh makes both from Debian's packages, and with those
# tests/image builds and starts this image. The default images were not at hand there.
ARG BUILD=python:3.11-bookworm
ARG BASE=gcr.io/distroless/python3-debian12

FROM ${BUILD} AS build
WORKDIR /src
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
COPY requirements/ requirements/
# What builds is pinned too; it stays in an environment that the image does not keep.
RUN python3.11 -m venv /opt/backend
RUN /opt/backend/bin/pip install --require-hashes -r requirements/build.lock
RUN /opt/backend/bin/pip install --require-hashes --target /opt/pidgate -r requirements/run.lock
COPY pyproject.toml setup.py README.md LICENSE NOTICE ./
COPY pidgate/ pidgate/
RUN /opt/backend/bin/pip wheel --no-deps --no-build-isolation --wheel-dir /opt/backend/wheels .
RUN /opt/backend/bin/pip install --no-deps --no-index --find-links /opt/backend/wheels --target /opt/pidgate pidgate
# Commands of the packages name an interpreter that the image does not have.
RUN rm -rf /opt/pidgate/bin && mkdir /opt/state

FROM ${BASE}
COPY --from=build /opt/pidgate /opt/pidgate
# The gateway's home, for `state_dir: /var/lib/pidgate`: mount a volume there. Nothing else is written to.
COPY --from=build --chown=10001:10001 /opt/state /var/lib/pidgate
ENV PYTHONPATH=/opt/pidgate PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HOME=/var/lib/pidgate
USER 10001:10001
WORKDIR /
# 9292 bootstrap, 9300 and up one port per broker, 9290 health and metrics: as in the example files.
EXPOSE 9292 9300-9305 9290
HEALTHCHECK --interval=10s --timeout=5s --start-period=10s --retries=3 \
  CMD ["python3.11", "-m", "pidgate", "health", "--config", "/etc/pidgate/pidgate.yaml"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["python3.11", "-m", "pidgate"]
CMD ["run", "--config", "/etc/pidgate/pidgate.yaml"]
