import java.io.BufferedReader;
import java.io.FileReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * One transaction in two halves, then a whole one: with the producer of the first as long as that may go on, else with
 * a new one. Before the second half, and before the whole one, it waits for a line on stdin, or for its end. Arguments:
 * a file of properties, the topic, the number of records of a half. Prints "half", then "outcome<tab>exception or committed", "ending<tab>...", "after<tab>...".
 */
public class RefusedTransaction {
    public static void main(String[] args) throws Exception {
        Properties properties = new Properties();
        try (FileReader file = new FileReader(args[0])) {
            properties.load(file);
        }
        int half = Integer.parseInt(args[2]);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        KafkaProducer<String, String> producer = open(properties);
        producer.beginTransaction();
        send(producer, args[1], "first", 0, half);
        say("half", "sent");
        in.readLine();
        String outcome = "committed";
        String ending = "none";
        try {
            send(producer, args[1], "first", half, half);
            producer.commitTransaction();
        } catch (Exception error) {
            outcome = nameOf(error);
            try {
                producer.abortTransaction();
                ending = "aborted";
            } catch (Exception fatal) {
                ending = "new producer after " + nameOf(fatal);
                producer.close();
                producer = open(properties);
            }
        }
        say("outcome", outcome);
        say("ending", ending);
        in.readLine();
        producer.beginTransaction();
        send(producer, args[1], "after", 0, half);
        producer.commitTransaction();
        say("after", "committed");
        producer.close();
    }

    private static KafkaProducer<String, String> open(Properties properties) {
        KafkaProducer<String, String> producer =
                new KafkaProducer<>(properties, new StringSerializer(), new StringSerializer());
        producer.initTransactions();
        return producer;
    }

    private static void send(KafkaProducer<String, String> producer, String topic, String name, int first, int count)
            throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (int n = first; n < first + count; n++) {
            sent.add(producer.send(new ProducerRecord<>(topic, 0, null, name + "-" + n)));
        }
        producer.flush();
        for (Future<RecordMetadata> one : sent) {
            one.get();
        }
    }

    private static String nameOf(Throwable error) {
        Throwable cause = error.getCause() == null ? error : error.getCause();
        return cause.getClass().getSimpleName();
    }

    private static void say(String what, String text) {
        System.out.println(what + "\t" + text);
    }
}
