#!/usr/bin/env python3
"""etcd, as a Kubernetes control plane uses it: leases are renewed, pods change their status, events are added; each write is durable."""

import base64
import hashlib
import http.client
import json
import os
import random

from common import SEED, free_port, in_threads, main, server, tool

CLIENTS = 4
UPDATES = 2400
NODES = 20
PODS = 300


def stamp(n):
    return f"2026-01-01T{n // 3600 % 24:02}:{n // 60 % 60:02}:{n % 60:02}Z"


def meta(kind, name, version):
    uid = hashlib.sha256(f"{kind}/{name}".encode()).hexdigest()
    return {
        "name": name,
        "namespace": "default",
        "uid": f"{uid[:8]}-{uid[8:12]}-{uid[12:16]}-{uid[16:20]}-{uid[20:32]}",
        "resourceVersion": str(version),
        "creationTimestamp": stamp(0),
        "labels": {"app": name.rsplit("-", 1)[0], "pod-template-hash": uid[32:42]},
    }


def lease(n, version):
    name = f"node-{n}"
    spec = {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": stamp(version)}
    return f"leases/kube-node-lease/{name}", {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta("lease", name, version), "spec": spec}


def pod(n, version):
    name = f"service{n % 40}-{n}"
    image = f"registry.example/service{n % 40}@sha256:{hashlib.sha256(str(n % 40).encode()).hexdigest()}"
    conditions = [
        {"type": kind, "status": "True", "lastProbeTime": None, "lastTransitionTime": stamp(version - late)}
        for late, kind in enumerate(("Initialized", "Ready", "ContainersReady", "PodScheduled"))
    ]
    container = {
        "name": "main",
        "image": image,
        "env": [{"name": f"SETTING_{i}", "value": hashlib.md5(f"{n}/{i}".encode()).hexdigest()} for i in range(8)],
        "resources": {"limits": {"cpu": "500m", "memory": "256Mi"}, "requests": {"cpu": "100m", "memory": "128Mi"}},
        "volumeMounts": [{"name": "token", "readOnly": True, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}],
        "imagePullPolicy": "IfNotPresent",
    }
    state = {"name": "main", "image": image, "restartCount": version % 3, "ready": True, "state": {"running": {"startedAt": stamp(version)}}}
    status = {"phase": "Running", "conditions": conditions, "podIP": f"10.1.{n // 250}.{n % 250}", "containerStatuses": [state]}
    spec = {"containers": [container], "nodeName": f"node-{n % NODES}", "restartPolicy": "Always", "schedulerName": "default-scheduler"}
    return f"pods/default/{name}", {"apiVersion": "v1", "kind": "Pod", "metadata": meta("pod", name, version), "spec": spec, "status": status}


def event(n, version):
    name = f"service{n % 40}-{n}.{version:x}"
    what = {"kind": "Pod", "namespace": "default", "name": f"service{n % 40}-{n}"}
    body = {"reason": "Pulled", "message": f"Container image for service{n % 40} already present on machine", "type": "Normal", "count": 1}
    times = {"firstTimestamp": stamp(version), "lastTimestamp": stamp(version), "source": {"component": "kubelet", "host": f"node-{n % NODES}"}}
    return f"events/default/{name}", {"apiVersion": "v1", "kind": "Event", "metadata": meta("event", name, version), "involvedObject": what, **body, **times}


class Client:
    """One connection to the server's gateway."""

    def __init__(self, port):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def ask(self, path, body):
        self.connection.request("POST", f"/v3/kv/{path}", json.dumps(body))
        answer = self.connection.getresponse()
        text = answer.read()
        if answer.status != 200:
            raise SystemExit(f"etcd: {answer.status}: {text.decode(errors='replace')}")
        return json.loads(text)

    def put(self, key, value):
        encoded = (base64.b64encode(part.encode()).decode() for part in (f"/registry/{key}", json.dumps(value)))
        self.ask("put", dict(zip(("key", "value"), encoded)))


def healthy(port):
    try:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        connection.request("GET", "/health")
        return b"true" in connection.getresponse().read()
    except (OSError, http.client.HTTPException):
        return False


def running(job):
    port, peer = free_port(), free_port()
    command = [tool("etcd"), "--data-dir", job.path("etcd"), "--logger", "zap", "--log-level", "error"]
    for kind, number in (("client", port), ("peer", peer)):
        command += [f"--listen-{kind}-urls", f"http://127.0.0.1:{number}"]
    command += ["--advertise-client-urls", f"http://127.0.0.1:{port}", "--initial-advertise-peer-urls", f"http://127.0.0.1:{peer}"]
    command += ["--initial-cluster", f"default=http://127.0.0.1:{peer}"]
    return port, server(command, os.path.join(job.sources, "etcd.log"), lambda: healthy(port))


def prepare(job):
    port, etcd = running(job)
    with etcd:
        client = Client(port)
        for n in range(NODES):
            client.put(*lease(n, 1))
        for n in range(job.scaled(PODS, least=CLIENTS)):
            client.put(*pod(n, 1))


def run(job):
    port, etcd = running(job)
    each, pods = job.scaled(UPDATES) // CLIENTS, job.scaled(PODS, least=CLIENTS)

    def serve(job, thread):
        numbers, client = random.Random(SEED + thread), Client(port)
        for n in range(each):
            version, kind = 2 + n * CLIENTS + thread, numbers.random()
            if kind < 0.5:
                client.put(*lease(numbers.randrange(NODES), version))
            elif kind < 0.8:
                client.put(*pod(numbers.randrange(pods), version))
            else:
                client.put(*event(numbers.randrange(pods), version))

    with etcd:
        with job.timed():
            in_threads(CLIENTS, serve, job)
        answer = Client(port).ask("range", {"key": base64.b64encode(b"/registry/").decode(), "range_end": base64.b64encode(b"/registry0").decode(), "count_only": True})
        if int(answer["count"]) < NODES + pods:
            raise SystemExit(f"etcd has {answer['count']} keys")
    return each * CLIENTS


main(run, prepare)
