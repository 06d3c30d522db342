"""Any chat model: in this process, behind an endpoint, served; its weights."""
