"""Connections that mmroute opens as a client, with deadlines and checks of addresses."""
