"""A model that answers chats: in this process or behind an endpoint, with every reply kept."""
