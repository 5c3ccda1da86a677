// What a refused producer of kafkajs sees: node refused.mjs HOST:PORT TOPIC [PRODUCERS]
// Opens one producer after the other, each with one record. kafkajs logs the refusal itself, as an error.
import { Kafka, logLevel } from "kafkajs";

const [servers, topic, producers = 3] = process.argv.slice(2);
for (let number = 1; number <= producers; number++) {
  const kafka = new Kafka({ clientId: `refused-${number}`, brokers: servers.split(","), logLevel: logLevel.ERROR });
  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 });
  producer.on(producer.events.REQUEST, ({ payload }) => {
    if (payload.apiName === "Produce") console.log(`producer ${number}: asked, ${payload.duration} ms`);
  });
  const began = Date.now();
  let outcome = "acknowledged";
  try {
    await producer.connect();
    // kafkajs sends a refused record again, for minutes if it is idempotent (retry.retries).
    await producer.send({ topic, acks: -1, messages: [{ value: "a record" }] });
  } catch (error) {
    outcome = `failed: ${error.message}`;
  }
  console.log(`producer ${number}: ${outcome} after ${((Date.now() - began) / 1000).toFixed(1)} s`);
  await producer.disconnect();
}
