// Members of consumer groups, and what the admin can do with groups. A member reads in the background.

const members = new Map()
let lastMember = 0

// KafkaJS brings an assignor of its own only. This one is Kafka's range, so that others can be in the group.
const rangeAssigner = ({ AssignerProtocol: { MemberMetadata, MemberAssignment } }) => ({ cluster }) => ({
  name: 'range',
  version: 0,
  protocol: ({ topics }) => ({
    name: 'range',
    metadata: MemberMetadata.encode({ version: 0, topics, userData: Buffer.alloc(0) }),
  }),
  async assign({ members: everyone }) {
    const assignment = new Map(everyone.map(({ memberId }) => [memberId, {}]))
    const subscribers = new Map()
    for (const { memberId, memberMetadata } of everyone) {
      for (const topic of MemberMetadata.decode(memberMetadata).topics) {
        subscribers.set(topic, [...(subscribers.get(topic) ?? []), memberId].sort())
      }
    }
    for (const [topic, ids] of subscribers) {
      await cluster.addTargetTopic(topic)
      const partitions = cluster.findTopicPartitionMetadata(topic).map(each => each.partitionId).sort((a, b) => a - b)
      const share = partitions.length / ids.length
      ids.forEach((id, index) => {
        assignment.get(id)[topic] = partitions.slice(Math.ceil(index * share), Math.ceil((index + 1) * share))
      })
    }
    return [...assignment].map(([memberId, given]) => ({
      memberId,
      memberAssignment: MemberAssignment.encode({ version: 0, assignment: given, userData: Buffer.alloc(0) }),
    }))
  },
})

export const groupOperations = (kafka, library, withAdmin) => ({
  async member_start({ group, topic, reset, assignors }) {
    const partitionAssigners = assignors.map(name => (name === 'range' ? rangeAssigner(library) : library.PartitionAssigners.roundRobin))
    const consumer = kafka.consumer({
      groupId: group,
      partitionAssigners,
      sessionTimeout: 6000,
      heartbeatInterval: 300,
      maxWaitTimeInMs: 100,
    })
    const member = { consumer, topic, assignment: [], assignments: 0, revoked: [], read: [], error: null }
    consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
      const now = payload.memberAssignment[topic] ?? []
      member.revoked.push(...member.assignment.filter(each => !now.includes(each)))
      member.assignment = now
      member.assignments++
    })
    consumer.on(consumer.events.REBALANCING, () => {
      member.revoked.push(...member.assignment)
      member.assignment = []
    })
    consumer.on(consumer.events.CRASH, ({ payload }) => {
      member.error = payload.error.code ?? -1
    })
    await consumer.connect()
    await consumer.subscribe({ topic, fromBeginning: reset === 'earliest' })
    await consumer.run({
      autoCommit: false,
      eachMessage: async ({ partition, message }) => {
        member.read.push([partition, Number(message.offset)])
      },
    })
    members.set(++lastMember, member)
    return lastMember
  },

  async member_look({ member: number }) {
    const { assignment, assignments, revoked, read, error } = members.get(number)
    return { assignment, assignments, revoked, read, error }
  },

  async member_commit({ member: number, partition, offset, metadata }) {
    const { consumer, topic } = members.get(number)
    await consumer.commitOffsets([{ topic, partition, offset: String(offset), metadata }])
  },

  async member_stop({ member: number }) {
    await members.get(number).consumer.disconnect()
    members.delete(number)
  },

  async groups() {
    const { groups } = await withAdmin(admin => admin.listGroups())
    return groups.map(each => each.groupId)
  },

  async describe_group({ group }) {
    const { groups } = await withAdmin(admin => admin.describeGroups([group]))
    return { state: groups[0].state, assignor: groups[0].protocol, members: groups[0].members.length }
  },

  async group_offsets({ group, topic }) {
    const [{ partitions }] = await withAdmin(admin => admin.fetchOffsets({ groupId: group, topics: [topic] }))
    const found = partitions.filter(each => each.offset !== '-1')
    return Object.fromEntries(found.map(({ partition, offset, metadata }) => [partition, [Number(offset), metadata ?? '']]))
  },

  delete_group: ({ group }) => withAdmin(admin => admin.deleteGroups([group])),
})
