import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.requests.AbstractRequest;
import org.apache.kafka.common.utils.ByteUtils;

/**
 * Bytes as Kafka reads them. Each line of stdin is answered with one line, "refused" where Kafka throws:
 *
 *     varint HEX               the number, unsigned, and how many bytes it took
 *     request KEY VERSION HEX  all fields of the body as its class prints them
 */
public class Readings {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        StringBuilder out = new StringBuilder();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            ByteBuffer buffer = ByteBuffer.wrap(HexFormat.of().parseHex(words[words.length - 1]));
            try {
                out.append(words[0].equals("varint") ? varint(buffer) : request(words, buffer));
            } catch (RuntimeException e) {
                out.append("refused");
            }
            out.append('\n');
        }
        System.out.print(out);
    }

    private static String varint(ByteBuffer buffer) {
        long value = ByteUtils.readUnsignedVarint(buffer) & 0xffffffffL;
        return value + " " + buffer.position();
    }

    private static String request(String[] words, ByteBuffer buffer) {
        ApiKeys api = ApiKeys.forId(Integer.parseInt(words[1]));
        short version = Short.parseShort(words[2]);
        AbstractRequest read = AbstractRequest.parseRequest(api, version, new ByteBufferAccessor(buffer)).request;
        return read.data().toString().replace('\n', ' ').replace('\r', ' ');
    }
}
