import java.io.BufferedReader;
import java.io.FileReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterClientQuotasOptions;
import org.apache.kafka.clients.admin.AlterClientQuotasResult;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.quota.ClientQuotaFilterComponent;

/**
 * Client quotas with Java's Admin, one command a line on stdin, fields parted by tabs; the argument is a file of
 * client properties. A name that is missing ("user") is the default one; a value that is missing is removed.
 *
 *     alter|validate  user=alice producer_ids_rate=100 producer_byte_rate=   user= ...
 *     describe|describe-strict  user=alice  client-id  ip:
 *
 * Of an entry the first word is the entity, its components joined by "&". In a filter "user=alice" is the one,
 * "user" any, "user:" the default. Each command is answered with lines "entity<tab>result", then ---- alone.
 */
public class ClientQuotas {
    public static void main(String[] args) throws Exception {
        Properties properties = new Properties();
        try (FileReader file = new FileReader(args[0])) {
            properties.load(file);
        }
        try (Admin admin = Admin.create(properties);
                BufferedReader in = new BufferedReader(new InputStreamReader(System.in))) {
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                String[] words = line.split("\t");
                if (words[0].startsWith("describe")) {
                    describe(admin, words, words[0].endsWith("strict"));
                } else {
                    alter(admin, words, words[0].equals("validate"));
                }
                System.out.println("----");
            }
        }
    }

    private static void alter(Admin admin, String[] words, boolean validateOnly) throws Exception {
        List<ClientQuotaAlteration> entries = new ArrayList<>();
        for (int i = 1; i < words.length; i++) {
            String[] parts = words[i].split(" ");
            List<ClientQuotaAlteration.Op> ops = new ArrayList<>();
            for (int j = 1; j < parts.length; j++) {
                String[] op = parts[j].split("=", 2);
                ops.add(new ClientQuotaAlteration.Op(op[0], op[1].isEmpty() ? null : Double.valueOf(op[1])));
            }
            entries.add(new ClientQuotaAlteration(entity(parts[0]), ops));
        }
        AlterClientQuotasResult result =
            admin.alterClientQuotas(entries, new AlterClientQuotasOptions().validateOnly(validateOnly));
        for (ClientQuotaAlteration entry : entries) {
            System.out.println(shown(entry.entity()) + "\t" + outcome(result, entry.entity()));
        }
    }

    private static String outcome(AlterClientQuotasResult result, ClientQuotaEntity entity) throws Exception {
        try {
            result.values().get(entity).get();
            return "ok";
        } catch (ExecutionException e) {
            return e.getCause().getClass().getSimpleName() + ": " + e.getCause().getMessage();
        }
    }

    private static void describe(Admin admin, String[] words, boolean strict) throws Exception {
        List<ClientQuotaFilterComponent> components = new ArrayList<>();
        for (int i = 1; i < words.length; i++) {
            if (words[i].contains("=")) {
                String[] parts = words[i].split("=", 2);
                components.add(ClientQuotaFilterComponent.ofEntity(parts[0], parts[1]));
            } else if (words[i].endsWith(":")) {
                String type = words[i].substring(0, words[i].length() - 1);
                components.add(ClientQuotaFilterComponent.ofDefaultEntity(type));
            } else {
                components.add(ClientQuotaFilterComponent.ofEntityType(words[i]));
            }
        }
        ClientQuotaFilter filter =
            strict ? ClientQuotaFilter.containsOnly(components) : ClientQuotaFilter.contains(components);
        try {
            Map<ClientQuotaEntity, Map<String, Double>> found = admin.describeClientQuotas(filter).entities().get();
            Map<String, String> lines = new TreeMap<>();
            found.forEach((entity, values) -> lines.put(shown(entity), new TreeMap<>(values).toString()));
            lines.forEach((entity, values) -> System.out.println(entity + "\t" + values));
        } catch (ExecutionException e) {
            System.out.println("!\t" + e.getCause().getClass().getSimpleName() + ": " + e.getCause().getMessage());
        }
    }

    private static ClientQuotaEntity entity(String word) {
        Map<String, String> entries = new HashMap<>();
        for (String component : word.split("&")) {
            String[] parts = component.split("=", 2);
            entries.put(parts[0], parts.length == 1 ? null : parts[1]);
        }
        return new ClientQuotaEntity(entries);
    }

    private static String shown(ClientQuotaEntity entity) {
        List<String> parts = new ArrayList<>();
        new TreeMap<>(entity.entries()).forEach((type, name) -> parts.add(name == null ? type : type + "=" + name));
        return String.join("&", parts);
    }
}
