// What a refused Java producer sees: java -cp 'kafka-clients and its jars' Refused.java HOST:PORT TOPIC [PRODUCERS]
// Opens one producer after the other, each with one record.

import java.util.Map;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

public class Refused {
    public static void main(String[] given) throws Exception {
        int producers = given.length > 2 ? Integer.parseInt(given[2]) : 3;
        Map<String, Object> config = Map.of("bootstrap.servers", given[0]);
        for (int number = 1; number <= producers; number++) {
            long began = System.nanoTime();
            try (var producer = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer())) {
                // Up to delivery.timeout.ms (120 s) the producer sends a refused record again, in order.
                String outcome = "acknowledged";
                try {
                    producer.send(new ProducerRecord<>(given[1], "a record")).get();
                } catch (java.util.concurrent.ExecutionException failed) {
                    outcome = "failed: " + failed.getCause();
                }
                double throttled = producer.metrics().values().stream()
                    .filter(metric -> metric.metricName().name().equals("produce-throttle-time-max"))
                    .mapToDouble(metric -> (Double) metric.metricValue()).filter(Double::isFinite).max().orElse(0);
                if (throttled > 0) {
                    System.out.printf("producer %d: throttled for %.1f s%n", number, throttled / 1000);
                }
                System.out.printf("producer %d: %s after %.1f s%n", number, outcome, (System.nanoTime() - began) / 1e9);
            }
        }
    }
}
