# pidgate as an image: everything pinned by hash, nothing but Python and one virtual environment at run time.
#
#   docker build -t pidgate .
#   docker run -v ./pidgate.yaml:/etc/pidgate/pidgate.yaml:ro -p 9292:9292 -p 9300-9305:9300-9305 pidgate
#
# Inside a container `bind` has to be 0.0.0.0:PORT and `advertise` the name by which clients reach the host.
# tests/image/test_dockerfile.py runs these steps and the health command without an engine.

# Not slim: the hot path is compiled.
FROM python:3.11 AS build
WORKDIR /src
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
COPY requirements/ requirements/
RUN python -m venv /opt/pidgate
RUN /opt/pidgate/bin/pip install --require-hashes -r requirements/run.lock
# What builds is pinned too; it stays in an environment of its own that the image does not keep.
RUN python -m venv /opt/backend
RUN /opt/backend/bin/pip install --require-hashes -r requirements/build.lock
COPY pyproject.toml setup.py README.md LICENSE NOTICE ./
COPY pidgate/ pidgate/
RUN /opt/backend/bin/pip wheel --no-deps --no-build-isolation --wheel-dir /opt/backend/wheels .
RUN /opt/pidgate/bin/pip install --no-deps --no-index --find-links /opt/backend/wheels pidgate

FROM python:3.11-slim
RUN useradd --system --uid 10001 --create-home --shell /usr/sbin/nologin pidgate
COPY --from=build /opt/pidgate /opt/pidgate
ENV PATH=/opt/pidgate/bin:$PATH PYTHONUNBUFFERED=1
USER 10001
# 9292 bootstrap, 9300 and up one port per broker, 9290 health and metrics: as in the example files.
EXPOSE 9292 9300-9305 9290
HEALTHCHECK --interval=10s --timeout=5s --start-period=10s --retries=3 \
  CMD ["pidgate", "health", "--config", "/etc/pidgate/pidgate.yaml"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["pidgate"]
CMD ["run", "--config", "/etc/pidgate/pidgate.yaml"]
