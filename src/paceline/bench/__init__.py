"""Measurements that anybody can repeat, each checked for identical output while it is taken."""
