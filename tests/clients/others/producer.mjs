// kafkajs for the tests: idempotent, with its defaults otherwise. One lane a partition, as order is of a partition.
//
//   node producer.mjs kafkajs '{"bootstrap_servers": "h:p", "topic": "t", "records": 240, "partitions": 6, ...}'
//
// What becomes of each record is told on stdout as JSON lines; whoever started this keeps the journal.
import { Kafka, logLevel } from "kafkajs";

const [client, errand] = process.argv.slice(2);
const load = JSON.parse(errand);
const tell = (event) => process.stdout.write(JSON.stringify(event) + "\n");

const kafka = new Kafka({
  clientId: client,
  brokers: load.bootstrap_servers.split(","),
  logLevel: logLevel.WARN,
});
const retry = load.retries ? { retries: load.retries } : undefined;
const transactionalId = load.transaction_size ? `${load.topic}-${load.number}` : undefined;
const producer = kafka.producer({
  idempotent: true,
  maxInFlightRequests: 1,
  ...(retry && { retry }),
  ...(transactionalId && { transactionalId }),
});
await producer.connect();

const began = Date.now();
const pause = async (n) => {
  const due = load.records_per_s > 0 ? began + (1000 * n) / load.records_per_s - Date.now() : 0;
  if (due > 0) await new Promise((resolve) => setTimeout(resolve, due));
};
const messageOf = (partition, number) => ({
  partition,
  value: `${client}-${load.number}|${partition}|${number}|`.padEnd(load.size_bytes, "."),
});

async function transactions() {
  for (let first = 0; first < load.records; first += load.transaction_size) {
    await pause(first);
    const numbers = [];
    for (let n = first; n < Math.min(first + load.transaction_size, load.records); n++) numbers.push(n);
    numbers.forEach((number) => tell({ event: "sent", partition: number % load.partitions, n: number }));
    const transaction = await producer.transaction();
    const messages = numbers.map((number) => messageOf(number % load.partitions, number));
    await transaction.send({ topic: load.topic, acks: -1, messages });
    await transaction.commit();
    numbers.forEach((number) =>
      tell({ event: "acknowledged", partition: number % load.partitions, n: number, offset: -1 }),
    );
  }
}

async function lane(partition) {
  for (let n = partition; n < load.records; ) {
    const numbers = [];
    for (; n < load.records && numbers.length < (load.is_batched ? 500 : 1); n += load.partitions) numbers.push(n);
    const messages = numbers.map((number) => messageOf(partition, number));
    await pause(numbers[0]);
    numbers.forEach((number) => tell({ event: "sent", partition, n: number }));
    try {
      const [told] = await producer.send({ topic: load.topic, acks: -1, messages });
      numbers.forEach((number, at) =>
        tell({ event: "acknowledged", partition, n: number, offset: Number(told.baseOffset) + at }),
      );
    } catch (error) {
      numbers.forEach((number) =>
        tell({ event: "failed", partition, n: number, error: `${error.name}: ${error.message}` }),
      );
    }
  }
}

if (transactionalId) await transactions();
else await Promise.all([...Array(load.partitions).keys()].map(lane));
await producer.disconnect();
