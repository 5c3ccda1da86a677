import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.ByteArrayInputStream;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.util.Base64;
import java.util.Map;
import javax.security.auth.callback.Callback;
import javax.security.auth.x500.X500Principal;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.kafka.common.errors.UnsupportedVersionException;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.message.ProduceRequestData;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.requests.RequestHeader;
import org.apache.kafka.common.security.oauthbearer.internals.OAuthBearerClientInitialResponse;
import org.apache.kafka.common.security.plain.PlainAuthenticateCallback;
import org.apache.kafka.common.security.plain.internals.PlainSaslServer;
import org.apache.kafka.common.security.scram.internals.ScramFormatter;
import org.apache.kafka.common.security.scram.internals.ScramMechanism;
import org.apache.kafka.common.security.scram.internals.ScramMessages;
import org.apache.kafka.common.utils.ByteUtils;
import org.jose4j.base64url.Base64Url;
import org.jose4j.json.JsonUtil;

/**
 * Kafka's own decoders, for comparison: what each question holds, as JSON, or "!" and why it is refused.
 * Question and answer are bytes behind their length (4 bytes); the first byte of a question names the decoder.
 */
public class Decode {
    public static void main(String[] args) throws Exception {
        DataInputStream in = new DataInputStream(System.in);
        DataOutputStream out = new DataOutputStream(new java.io.BufferedOutputStream(System.out));
        while (true) {
            int length;
            try {
                length = in.readInt();
            } catch (IOException end) {
                return;
            }
            byte[] question = new byte[length];
            in.readFully(question);
            byte[] answer = answered(question).getBytes(StandardCharsets.UTF_8);
            out.writeInt(answer.length);
            out.write(answer);
            out.flush();
        }
    }

    private static String answered(byte[] question) {
        ByteBuffer buffer = ByteBuffer.wrap(question, 1, question.length - 1).slice();
        byte[] rest = new byte[question.length - 1];
        buffer.duplicate().get(rest);
        try {
            switch (question[0]) {
                case 'R': return request(buffer).toString();
                case 'V': return ByteUtils.readUnsignedVarint(buffer) + " " + buffer.position();
                case 'P': return text(plain(rest));
                case 'S': return text(scram(rest));
                case 'L': return login(rest).toString();
                case 'B': return text(new OAuthBearerClientInitialResponse(rest).tokenValue());
                case 'J': return claims(new String(rest, StandardCharsets.UTF_8)).toString();
                case 'N': return text(new X500Principal(rest).getName());
                case 'C': return certificate(rest).toString();
                default: return "!unknown";
            }
        } catch (Throwable problem) {
            return "!" + problem;
        }
    }

    private static String text(String value) {
        return JsonNodeFactory.instance.textNode(value).toString();
    }

    private static ObjectNode request(ByteBuffer buffer) throws Exception {
        RequestHeader header = RequestHeader.parse(buffer);
        // Produce 0 to 2 have a header that parses; the message's class would read them as version 3.
        if (!header.apiKey().isVersionSupported(header.apiVersion()))
            throw new UnsupportedVersionException(header.apiKey().name + " " + header.apiVersion());
        ApiMessage message = ApiMessageType.fromApiKey(header.apiKey().id).newRequest();
        message.read(new ByteBufferAccessor(buffer), header.apiVersion());
        ObjectNode found = JsonNodeFactory.instance.objectNode();
        found.put("correlationId", header.correlationId());
        found.put("clientId", header.clientId());
        found.put("left", buffer.remaining());
        Class<?> converter = Class.forName(message.getClass().getName() + "JsonConverter");
        Method write = converter.getMethod("write", message.getClass(), short.class, boolean.class);
        found.set("body", (JsonNode) write.invoke(null, message, header.apiVersion(), false));
        if (message instanceof ProduceRequestData)
            found.set("batches", batches((ProduceRequestData) message));
        return found;
    }

    private static ArrayNode batches(ProduceRequestData produce) {
        ArrayNode found = JsonNodeFactory.instance.arrayNode();
        for (ProduceRequestData.TopicProduceData topic : produce.topicData())
            for (ProduceRequestData.PartitionProduceData partition : topic.partitionData()) {
                if (partition.records() == null)
                    continue;
                for (MutableRecordBatch batch : ((MemoryRecords) partition.records()).batches()) {
                    ArrayNode one = found.addArray();
                    one.add(batch.producerId()).add(batch.producerEpoch()).add(batch.baseSequence());
                    one.add(topic.name()).add(topic.topicId().toString()).add(partition.index());
                    one.add(batch.magic() >= 2 && batch.isTransactional());
                }
            }
        return found;
    }

    private static String plain(byte[] token) throws Exception {
        PlainSaslServer server = new PlainSaslServer(callbacks -> {
            for (Callback callback : callbacks)
                if (callback instanceof PlainAuthenticateCallback)
                    ((PlainAuthenticateCallback) callback).authenticated(true);
        });
        server.evaluateResponse(token);
        return server.getAuthorizationID();
    }

    private static String scram(byte[] token) throws Exception {
        ScramMessages.ClientFirstMessage first = new ScramMessages.ClientFirstMessage(token);
        String name = ScramFormatter.username(first.saslName());
        // As in ScramSaslServer: an authorization id has to be the same name.
        if (!first.authorizationId().isEmpty() && !first.authorizationId().equals(name))
            throw new IllegalArgumentException("another authorization id");
        return (first.extensions().tokenAuthenticated() ? "token " : "user ") + name;
    }

    /** The client's side of a SCRAM login of bob, as in ScramSaslClient: a byte for the mechanism, the server's first. */
    private static ObjectNode login(byte[] question) throws Exception {
        ScramMechanism mechanism = question[0] == 0 ? ScramMechanism.SCRAM_SHA_256 : ScramMechanism.SCRAM_SHA_512;
        ScramFormatter formatter = new ScramFormatter(mechanism);
        ScramMessages.ClientFirstMessage first =
            new ScramMessages.ClientFirstMessage("bob", "abcdefghijklmnop", Map.of());
        byte[] told = java.util.Arrays.copyOfRange(question, 1, question.length);
        ScramMessages.ServerFirstMessage answer = new ScramMessages.ServerFirstMessage(told);
        byte[] salted = formatter.hi(ScramFormatter.normalize("bob-secret"), answer.salt(), answer.iterations());
        ScramMessages.ClientFinalMessage last =
            new ScramMessages.ClientFinalMessage("n,,".getBytes(StandardCharsets.UTF_8), answer.nonce());
        last.proof(formatter.clientProof(salted, first, answer, last));
        byte[] signature = formatter.serverSignature(formatter.serverKey(salted), first, answer, last);
        ObjectNode found = JsonNodeFactory.instance.objectNode();
        found.put("understood", new String(answer.toBytes(), StandardCharsets.UTF_8));
        found.put("nonce", answer.nonce());
        found.put("final", new String(last.toBytes(), StandardCharsets.UTF_8));
        found.put("signature", Base64.getEncoder().encodeToString(signature));
        return found;
    }

    /** The subject of a JWT, as the brokers' two validators read it; without one that refuses. */
    private static ObjectNode claims(String token) {
        ObjectNode found = JsonNodeFactory.instance.objectNode();
        String payload = token.split("\\.", -1)[1];
        try {
            String json = new Base64Url().base64UrlDecodeToUtf8String(payload);
            found.put("jose4j", String.valueOf(JsonUtil.parseJson(json).get("sub")));
        } catch (Exception refused) {
            // left out
        }
        try {
            JsonNode read = new ObjectMapper().readTree(Base64.getUrlDecoder().decode(payload)).get("sub");
            found.put("jackson", read == null ? "null" : read.asText());
        } catch (Exception refused) {
            // left out
        }
        return found;
    }

    private static ObjectNode certificate(byte[] der) throws Exception {
        X509Certificate read = (X509Certificate) CertificateFactory.getInstance("X.509")
            .generateCertificate(new ByteArrayInputStream(der));
        ObjectNode found = JsonNodeFactory.instance.objectNode();
        found.put("name", read.getSubjectX500Principal().getName());
        found.put("begins", read.getNotBefore().getTime() / 1000);
        found.put("ends", read.getNotAfter().getTime() / 1000);
        return found;
    }
}
