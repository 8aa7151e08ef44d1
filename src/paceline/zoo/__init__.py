"""The bundled small models and the seeded text they learn from."""
