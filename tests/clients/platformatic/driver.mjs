// @platformatic/kafka as a peer: node driver.mjs host:port, with PEER_MODULES naming the node_modules folder.
//
// The stream of its consumer joins a group. So reading goes through the consumer's public fetch(), which the stream is
// made of; it asks by topic id (Fetch 13 and later).

import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import zlib from 'node:zlib'

import { base64, bytes, keepReader, readers, security, serve, take } from '../node/operations.mjs'

const library = pathToFileURL(join(process.env.PEER_MODULES, '@platformatic/kafka/dist/index.js'))
const { Admin, Consumer, Producer } = await import(library)

const TOPIC = 2
const DEFAULT_CONFIG = 5
const DELETE = 1
const EARLIEST = -2n
const LATEST = -1n

const { ssl: tls, sasl } = security()
const connection = { clientId: 'platformatic', bootstrapBrokers: process.argv[2].split(','), retryDelay: 50, tls, sasl }
const admin = new Admin(connection)

const using = async (client, use) => {
  try {
    return await use(client)
  } finally {
    await client.close()
  }
}

const offsetOf = async (topic, partition, at) => {
  const timestamp = { beginning: EARLIEST, end: LATEST, at: BigInt(at.value ?? 0) }[at.kind]
  const topics = [{ name: topic, partitions: [{ partitionIndex: partition, timestamp }] }]
  // A fresh client: a kept one answers from metadata of before the topic was created.
  const [answer] = await using(new Admin(connection), client => client.listOffsets({ topics }))
  return Number(answer.partitions[0].offset)
}

const leaderOf = async (client, topic, partition) => {
  const { topics } = await client.metadata({ topics: [topic], forceUpdate: true, autocreateTopics: false })
  const { id, partitions } = topics.get(topic)
  return { topicId: id, node: partitions[partition].leader }
}

const recordsOf = batches =>
  batches.flatMap(batch =>
    batch.records.map(record => ({
      key: base64(record.key),
      value: base64(record.value),
      headers: record.headers.map(([name, value]) => [name.toString(), base64(value)]),
      timestamp: Number(batch.attributes & 8 ? batch.maxTimestamp : batch.firstTimestamp + record.timestampDelta),
      offset: Number(batch.firstOffset) + record.offsetDelta,
    }))
  )

const pairs = object => Object.entries(object).map(([name, value]) => ({ name, value }))

const operations = {
  codecs: () => ['none', 'gzip', 'snappy', 'lz4', ...(zlib.zstdCompressSync ? ['zstd'] : [])],

  async produce({ topic, partition, records, codec, acks, idempotent }) {
    const messages = records.map(record => ({
      topic,
      partition,
      key: bytes(record.key),
      value: bytes(record.value),
      headers: new Map(record.headers.map(([name, value]) => [Buffer.from(name), bytes(value)])),
      ...(record.timestamp === null ? {} : { timestamp: BigInt(record.timestamp) }),
    }))
    const options = { ...connection, autocreateTopics: true, idempotent, compression: codec }
    await using(new Producer(options), producer => producer.send({ messages, acks: acks === 'all' ? -1 : Number(acks) }))
  },

  async open({ topic, partition, start }) {
    const next = {
      offset: () => start.value,
      tail: async () => (await offsetOf(topic, partition, { kind: 'end' })) - start.value,
    }[start.kind]
    const offset = await (next ? next() : offsetOf(topic, partition, start))
    const consumer = new Consumer({ ...connection, groupId: 'unused' })
    const leader = await leaderOf(consumer, topic, partition)
    return keepReader({ consumer, ...leader, partition, next: offset, ahead: [] })
  },

  async take({ reader: number, count }) {
    const reader = readers.get(number)
    const { consumer, node, topicId, partition } = reader
    return take(reader, count, async offset => {
      const wanted = {
        partition,
        fetchOffset: BigInt(offset),
        currentLeaderEpoch: -1,
        lastFetchedEpoch: -1,
        partitionMaxBytes: 1 << 20,
      }
      const answer = await consumer.fetch({ node, maxWaitTime: 500, topics: [{ topicId, partitions: [wanted] }] })
      return answer.responses.flatMap(each => each.partitions.flatMap(found => recordsOf(found.records ?? [])))
    })
  },

  async close({ reader }) {
    await readers.get(reader).consumer.close(true)
    readers.delete(reader)
  },

  offset: ({ topic, partition, at }) => offsetOf(topic, partition, at),

  async create_topic({ topic, partitions, replication_factor: replicas, config }) {
    await admin.createTopics({ topics: [topic], partitions, replicas, configs: pairs(config) })
  },

  delete_topic: ({ topic }) => admin.deleteTopics({ topics: [topic] }),

  topics: () => admin.listTopics(),

  async partition_count({ topic }) {
    const { topics } = await admin.metadata({ topics: [topic], forceUpdate: true, autocreateTopics: false })
    return topics.get(topic).partitionsCount
  },

  create_partitions: ({ topic, total }) => admin.createPartitions({ topics: [{ name: topic, count: total }] }),

  async configs({ topic }) {
    const [{ configs }] = await admin.describeConfigs({ resources: [{ resourceType: TOPIC, resourceName: topic }] })
    return configs.map(each => [each.name, each.value, each.configSource === DEFAULT_CONFIG])
  },

  async alter_config({ topic, alteration, key, value }) {
    const config = { name: key, configOperation: alteration, ...(alteration === DELETE ? {} : { value }) }
    await admin.incrementalAlterConfigs({ resources: [{ resourceType: TOPIC, resourceName: topic, configs: [config] }] })
  },

  async replace_configs({ topic, configs }) {
    await admin.alterConfigs({ resources: [{ resourceType: TOPIC, resourceName: topic, configs: pairs(configs) }] })
  },

  async delete_records({ topic, partition, before }) {
    const topics = [{ name: topic, partitions: [{ partition, offset: BigInt(before) }] }]
    await using(new Admin(connection), client => client.deleteRecords({ topics }))
  },

  async cluster() {
    const { id, controllerId, brokers } = await admin.metadata({ topics: [], forceUpdate: true })
    const nodes = [...brokers].map(([number, { host, port }]) => [number, host, port])
    return { cluster_id: id, controller_id: controllerId, brokers: nodes }
  },
}

// The error of the broker lies under wrappers: one per attempt, one per topic. Beside it stands a −1 for each record
// that the broker names as the cause.
const codesOf = error => {
  if (error == null) return []
  if (typeof error.apiCode === 'number') return [error.apiCode]
  return [...(error.errors ?? []), error.cause].flatMap(codesOf)
}
const codeOf = error => codesOf(error).find(code => code > 0)

await serve(operations, codeOf)
await admin.close()
