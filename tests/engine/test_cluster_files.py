"""The files that start clusters are as Ray and KubeRay read them."""

import json
from pathlib import Path

import jsonschema
import pytest
import yaml

ROOT = Path(__file__).parents[2]
ray = pytest.importorskip("ray", reason="the extra ray, which the set-up of the tests installs")


def test_the_file_of_a_cluster_on_aws_fits_rays_schema() -> None:
    schema = json.loads((Path(ray.__file__).parent / "autoscaler/ray-schema.json").read_text())
    given = yaml.safe_load((ROOT / "configs/ray/aws.yaml").read_text())
    jsonschema.validate(given, schema)
    assert given["head_node_type"] in given["available_node_types"]
    assert given["available_node_types"]["head"]["resources"] == {"CPU": 0}


def test_the_job_on_kubernetes_has_this_ray_and_one_disk_for_all() -> None:
    job = yaml.safe_load((ROOT / "configs/ray/kubernetes.yaml").read_text())["spec"]
    cluster = job["rayClusterSpec"]
    assert cluster["rayVersion"] == ray.__version__
    pods = [each["template"]["spec"] for each in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"])]
    mounted = [{each["name"]: each["mountPath"] for each in pod["containers"][0]["volumeMounts"]} for pod in pods]
    assert all(pod["volumes"] == pods[0]["volumes"] for pod in pods)
    assert all(folder["shared"] in job["entrypoint"] for folder in mounted)
    assert "EDITJUDGE_ENGINE=ray" in job["entrypoint"]
