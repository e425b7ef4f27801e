// Registers a schema of each format, encodes a value by it and decodes it again, as an application on Node does.
// Arguments: the registry's URL and a prefix of subjects. Prints one JSON document.

const { SchemaRegistry, SchemaType, COMPATIBILITY } = require("@kafkajs/confluent-schema-registry");

const [, , host, prefix] = process.argv;

const SCHEMAS = [
  [SchemaType.AVRO, '{"type":"record","name":"R","namespace":"n","fields":[{"name":"a","type":"int"}]}', { a: 7 }],
  [SchemaType.JSON, '{"type":"object","properties":{"a":{"type":"integer"}}}', { a: 7 }],
  [SchemaType.PROTOBUF, 'syntax = "proto3"; package n; message R { int32 a = 1; }', { a: 7 }],
];

async function main() {
  const found = {};
  for (const [type, schema, value] of SCHEMAS) {
    const registry = new SchemaRegistry({ host });
    const subject = `${prefix}-${type}`;
    const { id } = await registry.register({ type, schema }, { subject, compatibility: COMPATIBILITY.FULL });
    const again = await registry.register({ type, schema }, { subject, compatibility: COMPATIBILITY.FULL });
    const data = await registry.encode(id, value);
    const reader = new SchemaRegistry({ host });
    const decoded = await reader.decode(data);
    found[type] = {
      same: again.id === id,
      latest: (await reader.getLatestSchemaId(subject)) === id,
      byVersion: (await reader.getRegistryId(subject, 1)) === id,
      bySchema: (await reader.getRegistryIdBySchema(subject, { type, schema })) === id,
      frame: [data[0], data.readUInt32BE(1) === id],
      decoded: { ...decoded },
    };
  }
  try {
    await new SchemaRegistry({ host }).getLatestSchemaId(`${prefix}-none`);
  } catch (error) {
    found.error = error.message;
  }
  console.log(JSON.stringify(found));
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
