// The loop of a driver: one JSON request per line on stdin, one JSON answer per line on stdout, in order.
//
// A request is {"operation": name, ...arguments}; the answer is {"result": ...} or {"error": {"code", "message"}},
// where the code is Kafka's number of the error, or null for an error of the client itself.

import { readFileSync } from 'node:fs'
import { createInterface } from 'node:readline'

export const bytes = text => (text === null ? null : Buffer.from(text, 'base64'))
export const base64 = buffer => (buffer == null ? null : Buffer.from(buffer).toString('base64'))

export const serve = async (operations, codeOf) => {
  for await (const line of createInterface({ input: process.stdin })) {
    const { operation, ...request } = JSON.parse(line)
    let answer
    try {
      answer = { result: (await operations[operation](request)) ?? null }
    } catch (error) {
      answer = { error: { code: codeOf(error) ?? null, message: String(error?.stack ?? error) } }
    }
    process.stdout.write(JSON.stringify(answer) + '\n')
  }
}

// Readers live in the driver between requests, by number.
export const readers = new Map()
let lastReader = 0

export const keepReader = reader => {
  readers.set(++lastReader, reader)
  return lastReader
}

// Fetch until `count` records are there. `fetch(offset)` answers records in the JSON form, possibly from before the
// offset, since a fetch inside a batch gets the whole batch.
export const take = async (reader, count, fetch) => {
  const deadline = Date.now() + 20_000
  while (reader.ahead.length < count) {
    if (Date.now() > deadline) throw new Error(`${reader.ahead.length} of ${count} records came`)
    for (const record of await fetch(reader.next)) {
      if (record.offset >= reader.next) {
        reader.ahead.push(record)
        reader.next = record.offset + 1
      }
    }
  }
  return reader.ahead.splice(0, count)
}

// TLS and the login, from the JSON file that PEER_SECURITY names; neither without it.
export const security = () => (process.env.PEER_SECURITY ? JSON.parse(readFileSync(process.env.PEER_SECURITY)) : {})
