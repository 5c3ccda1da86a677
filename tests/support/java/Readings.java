import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import javax.security.auth.x500.X500Principal;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.requests.AbstractRequest;
import org.apache.kafka.common.security.oauthbearer.internals.OAuthBearerClientInitialResponse;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;
import org.apache.kafka.common.utils.ByteUtils;

/**
 * Bytes as Kafka reads them. Each line of stdin is answered with one line, "refused" where Kafka throws:
 *
 *     varint HEX               the number, unsigned, and how many bytes it took
 *     request KEY VERSION HEX  all fields of the body as its class prints them
 *     bearer HEX               the token in a client's first message of OAUTHBEARER
 *     name HEX                 a distinguished name in DER as text, in hexadecimal
 *     principal HEX HEX        what mapping rules make of a distinguished name, all in hexadecimal
 */
public class Readings {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        StringBuilder out = new StringBuilder();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            ByteBuffer buffer = ByteBuffer.wrap(HexFormat.of().parseHex(words[words.length - 1]));
            try {
                out.append(switch (words[0]) {
                    case "varint" -> varint(buffer);
                    case "bearer" -> new OAuthBearerClientInitialResponse(buffer.array()).tokenValue();
                    case "name" -> hex(new X500Principal(buffer.array()).getName());
                    case "principal" -> hex(SslPrincipalMapper.fromRules(text(words[1])).getName(text(words[2])));
                    default -> request(words, buffer);
                });
            } catch (Exception e) {
                out.append("refused");
            }
            out.append('\n');
        }
        System.out.print(out);
    }

    private static String hex(String text) {
        return HexFormat.of().formatHex(text.getBytes(StandardCharsets.UTF_8)) + ".";
    }

    private static String text(String hex) {
        return new String(HexFormat.of().parseHex(hex), StandardCharsets.UTF_8);
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
