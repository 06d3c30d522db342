"""A Qwen3-VL checkpoint: loading, processor, chats, the tiny one."""
