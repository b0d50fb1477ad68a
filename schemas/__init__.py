"""The contracts: Avro schemas of every event version, and the formats of manifests and spools."""
