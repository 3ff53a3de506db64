# An image of `mmroute serve` with its compiled parts. docs/deploy.md says how to run it.
FROM python:3.12-slim AS build
RUN apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev
COPY . /src
# Fails where the extensions do not compile: without them block hashes take up to ten times as long.
RUN MMROUTE_BUILD_EXTENSION=1 pip wheel --no-cache-dir --no-deps --wheel-dir /wheels /src
RUN python -m venv /opt/mmroute \
    && /opt/mmroute/bin/pip install --no-cache-dir --constraint /src/constraints.txt \
        "$(echo /wheels/mmroute-*.whl)[events,mistral,serve]" \
    && /opt/mmroute/bin/python -m compileall -q /opt/mmroute

FROM python:3.12-slim
COPY --from=build /opt/mmroute /opt/mmroute
RUN useradd --uid 10001 --create-home mmroute
USER 10001
EXPOSE 8000
ENV PATH=/opt/mmroute/bin:$PATH MMROUTE_HOST=0.0.0.0
ENTRYPOINT ["mmroute", "serve"]
