"""An OpenAI-compatible endpoint: client, pictures, replies, spending."""
