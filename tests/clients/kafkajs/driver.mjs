// KafkaJS as a peer: node driver.mjs host:port, with PEER_MODULES naming the node_modules folder.
//
// The consumer of KafkaJS cannot read without a group. So reading goes through KafkaJS's own cluster and broker
// classes, which its consumer is made of: the requests and the decoding are KafkaJS's all the same.

import { createRequire } from 'node:module'
import { join } from 'node:path'

import { groupOperations } from './groups.mjs'
import { base64, bytes, keepReader, readers, security, serve, take } from '../node/operations.mjs'

const require = createRequire(join(process.env.PEER_MODULES, 'driver.js'))
const { Kafka, CompressionTypes, CompressionCodecs, ConfigResourceTypes, logLevel } = require('kafkajs')
const Cluster = require('kafkajs/src/cluster')
const { createLogger } = require('kafkajs/src/loggers')
const LoggerConsole = require('kafkajs/src/loggers/console')
const defaultSocketFactory = require('kafkajs/src/network/socketFactory')
const lz4 = require('lz4-napi')
const { ZstdCodec } = require('zstd-codec')

const zstd = await new Promise(resolve => ZstdCodec.run(library => resolve(new library.Streaming())))
const codecOf = (compress, decompress) => () => ({
  compress: async encoder => Buffer.from(await compress(encoder.buffer)),
  decompress: async buffer => Buffer.from(await decompress(buffer)),
})
CompressionCodecs[CompressionTypes.Snappy] = require('kafkajs-snappy')
CompressionCodecs[CompressionTypes.LZ4] = codecOf(lz4.compressFrame, lz4.decompressFrame)
CompressionCodecs[CompressionTypes.ZSTD] = codecOf(data => zstd.compress(data), data => zstd.decompress(data))

const CODECS = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
}
const TOPIC = ConfigResourceTypes.TOPIC
const DEFAULT_CONFIG = 5
const TOPIC_ALREADY_EXISTS = 36

const brokers = process.argv[2].split(',')
const { ssl, sasl } = security()
const kafka = new Kafka({
  clientId: 'kafkajs',
  brokers,
  ssl,
  sasl: sasl && { ...sasl, mechanism: sasl.mechanism.toLowerCase() },
  logLevel: logLevel.NOTHING,
  retry: { initialRetryTime: 50 },
})

// An admin for each operation: a kept one goes on asking for topics that were deleted since, and fails over them.
const withAdmin = async use => {
  const admin = kafka.admin()
  await admin.connect()
  try {
    return await use(admin)
  } finally {
    await admin.disconnect()
  }
}

const newCluster = async topic => {
  const cluster = new Cluster({
    logger: createLogger({ level: logLevel.NOTHING, logCreator: LoggerConsole }),
    socketFactory: defaultSocketFactory(),
    brokers,
    ssl,
    sasl: sasl && { ...sasl, mechanism: sasl.mechanism.toLowerCase() },
    clientId: 'kafkajs',
    connectionTimeout: 1000,
    metadataMaxAge: 300000,
    allowAutoTopicCreation: false,
    isolationLevel: 0,
    retry: { initialRetryTime: 50 },
  })
  await cluster.connect()
  await cluster.addTargetTopic(topic)
  return cluster
}

const offsetIn = async (cluster, topic, partition, at) => {
  const position = {
    beginning: { fromBeginning: true },
    end: { fromBeginning: false },
    at: { fromTimestamp: at.value },
  }[at.kind]
  const [{ partitions }] = await cluster.fetchTopicsOffset([{ topic, partitions: [{ partition }], ...position }])
  return Number(partitions[0].offset)
}

const withCluster = async (topic, use) => {
  const cluster = await newCluster(topic)
  try {
    return await use(cluster)
  } finally {
    await cluster.disconnect()
  }
}

const headersOf = pairs => {
  const headers = {}
  for (const [name, value] of pairs) headers[name] = [...(headers[name] ?? []), bytes(value)]
  return headers
}

const pairsOf = headers =>
  Object.entries(headers).flatMap(([name, values]) => [values].flat().map(value => [name, base64(value)]))

const operations = {
  ...groupOperations(kafka, require('kafkajs'), withAdmin),

  async produce({ topic, partition, records, codec, acks, idempotent }) {
    const producer = kafka.producer({ idempotent, allowAutoTopicCreation: true })
    await producer.connect()
    try {
      const messages = records.map(record => ({
        partition,
        key: bytes(record.key),
        value: bytes(record.value),
        headers: headersOf(record.headers),
        ...(record.timestamp === null ? {} : { timestamp: String(record.timestamp) }),
      }))
      await producer.send({ topic, messages, acks: acks === 'all' ? -1 : Number(acks), compression: CODECS[codec] })
    } finally {
      await producer.disconnect()
    }
  },

  async transact({ id, topic, values, commits, group, offset }) {
    const producer = kafka.producer({ transactionalId: id, maxInFlightRequests: 1, idempotent: true })
    await producer.connect()
    try {
      const transaction = await producer.transaction()
      await transaction.send({ topic, messages: values.map(value => ({ value, partition: 0 })) })
      const partitions = [{ partition: 0, offset: String(offset) }]
      await transaction.sendOffsets({ consumerGroupId: group, topics: [{ topic, partitions }] })
      await (commits ? transaction.commit() : transaction.abort())
    } finally {
      await producer.disconnect()
    }
  },

  async open({ topic, partition, start }) {
    const cluster = await newCluster(topic)
    const next = {
      offset: () => start.value,
      tail: async () => (await offsetIn(cluster, topic, partition, { kind: 'end' })) - start.value,
    }[start.kind]
    const offset = await (next ? next() : offsetIn(cluster, topic, partition, start))
    return keepReader({ cluster, topic, partition, next: offset, ahead: [] })
  },

  async take({ reader: number, count }) {
    const reader = readers.get(number)
    const { cluster, topic, partition } = reader
    return take(reader, count, async offset => {
      const [nodeId] = Object.keys(cluster.findLeaderForPartitions(topic, [partition]))
      const broker = await cluster.findBroker({ nodeId })
      const { responses } = await broker.fetch({
        maxWaitTime: 500,
        minBytes: 1,
        isolationLevel: 0,
        topics: [{ topic, partitions: [{ partition, fetchOffset: String(offset), maxBytes: 1 << 20 }] }],
      })
      return responses[0].partitions[0].messages.map(message => ({
        key: base64(message.key),
        value: base64(message.value),
        headers: pairsOf(message.headers),
        timestamp: Number(message.timestamp),
        offset: Number(message.offset),
      }))
    })
  },

  async close({ reader }) {
    await readers.get(reader).cluster.disconnect()
    readers.delete(reader)
  },

  offset: ({ topic, partition, at }) => withCluster(topic, cluster => offsetIn(cluster, topic, partition, at)),

  async offsets_by_timestamp({ topic, timestamp }) {
    const found = await withAdmin(admin => admin.fetchTopicOffsetsByTimestamp(topic, timestamp))
    return Object.fromEntries(found.map(({ partition, offset }) => [partition, Number(offset)]))
  },

  async watermarks({ topic }) {
    const found = await withAdmin(admin => admin.fetchTopicOffsets(topic))
    return Object.fromEntries(found.map(({ partition, low, high }) => [partition, [Number(low), Number(high)]]))
  },

  async create_topic({ topic, partitions, replication_factor: replicationFactor, config, validate_only: validateOnly }) {
    const configEntries = Object.entries(config).map(([name, value]) => ({ name, value }))
    const wanted = { topic, numPartitions: partitions, replicationFactor, configEntries }
    const created = await withAdmin(admin => admin.createTopics({ topics: [wanted], validateOnly, waitForLeaders: !validateOnly }))
    // KafkaJS turns exactly this error into a return value.
    if (!created) throw Object.assign(new Error('topic exists'), { code: TOPIC_ALREADY_EXISTS })
  },

  delete_topic: ({ topic }) => withAdmin(admin => admin.deleteTopics({ topics: [topic] })),

  topics: () => withAdmin(admin => admin.listTopics()),

  async partition_count({ topic }) {
    const { topics } = await withAdmin(admin => admin.fetchTopicMetadata({ topics: [topic] }))
    return topics[0].partitions.length
  },

  create_partitions: ({ topic, total }) =>
    withAdmin(admin => admin.createPartitions({ topicPartitions: [{ topic, count: total }] })),

  async configs({ topic }) {
    const answer = await withAdmin(admin => admin.describeConfigs({ includeSynonyms: false, resources: [{ type: TOPIC, name: topic }] }))
    const entries = answer.resources[0].configEntries
    return entries.map(entry => [entry.configName, entry.configValue, entry.configSource === DEFAULT_CONFIG])
  },

  async replace_configs({ topic, configs }) {
    const configEntries = Object.entries(configs).map(([name, value]) => ({ name, value }))
    await withAdmin(admin => admin.alterConfigs({ validateOnly: false, resources: [{ type: TOPIC, name: topic, configEntries }] }))
  },

  delete_records: ({ topic, partition, before }) =>
    withAdmin(async admin => {
      // deleteTopicRecords looks for the leader in metadata that only an earlier operation has loaded.
      await admin.fetchTopicOffsets(topic)
      await admin.deleteTopicRecords({ topic, partitions: [{ partition, offset: String(before) }] })
    }),

  async cluster() {
    const { clusterId, controller, brokers: nodes } = await withAdmin(admin => admin.describeCluster())
    return { cluster_id: clusterId, controller_id: controller, brokers: nodes.map(n => [n.nodeId, n.host, n.port]) }
  },
}

// The error of the broker lies under wrappers: aggregates by topic, retry errors, a list by partition or group.
const codeOf = error => {
  if (error == null) return null
  if (typeof error.code === 'number') return error.code
  const listed = [...(error.partitions ?? []), ...(error.groups ?? [])].map(each => each.error)
  const inner = [...(error.errors ?? []), ...listed, error.cause, error.originalError]
  return inner.map(codeOf).find(code => code != null)
}

await serve(operations, codeOf)
