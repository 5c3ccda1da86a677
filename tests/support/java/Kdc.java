import java.io.File;
import org.apache.kerby.kerberos.kerb.server.SimpleKdcServer;

/**
 * A Kerberos key distribution centre on 127.0.0.1: DIRECTORY PORT REALM PRINCIPAL...
 *
 * Writes krb5.conf and a keytab for each principal into the directory, named by its first part, prints "ready" and
 * ends with its stdin.
 */
public class Kdc {
    public static void main(String[] args) throws Exception {
        File directory = new File(args[0]);
        SimpleKdcServer kdc = new SimpleKdcServer();
        kdc.setWorkDir(directory);
        kdc.setKdcHost("127.0.0.1");
        kdc.setKdcRealm(args[2]);
        kdc.setAllowUdp(false);
        kdc.setKdcTcpPort(Integer.parseInt(args[1]));
        kdc.init();
        for (int at = 3; at < args.length; at++) {
            String name = args[at].split("[/@]")[0];
            kdc.createAndExportPrincipals(new File(directory, name + ".keytab"), args[at]);
        }
        kdc.start();
        System.out.println("ready");
        while (System.in.read() >= 0) {
        }
        kdc.stop();
    }
}
