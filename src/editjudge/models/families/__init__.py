"""What `generate` takes of chats with images: any family's chats whole, and families whose chats share beginnings."""
