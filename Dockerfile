# A machine for load tests: Python, the default JRE of Debian, and this package. Brokers run elsewhere.
#   docker build --tag pytest-loadtest .
#   docker run --rm --volume "$PWD:/work" pytest-loadtest pytest -n 2 --load-target pulsar://broker.test.example:6650
# The user 1000 writes into /work; for a folder of another user: --user "$(id -u)" --env HOME=/tmp
ARG BASE=docker.io/library/debian:trixie-slim

FROM ${BASE} AS system
RUN apt-get update \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends python3 python3-venv default-jre-headless \
 && rm -rf /var/lib/apt/lists/*

FROM system AS build
COPY . /source
RUN python3 -m venv /opt/loadtest \
 && /opt/loadtest/bin/pip install --quiet --disable-pip-version-check /source

FROM system
COPY --from=build /opt/loadtest /opt/loadtest
RUN useradd --uid 1000 --create-home loadtest \
 && install --directory --owner loadtest /work
ENV PATH=/opt/loadtest/bin:$PATH
USER loadtest
WORKDIR /work
CMD ["pytest-loadtest", "doctor"]
