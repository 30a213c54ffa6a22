"""What a change must state: every case that it makes differ has its golden changed in the same commits."""
