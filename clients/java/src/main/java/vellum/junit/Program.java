package vellum.junit;

import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.Locale;

/** Where the server's program is. */
final class Program {
    private Program() {}

    /**
     * The program that VELLUM_BINARY names, or that of vellum-server on the class path, or the vellum on the path.
     *
     * @throws IllegalStateException where there is none
     */
    static String find() {
        String named = System.getenv("VELLUM_BINARY");
        if (named != null && !named.isEmpty()) {
            return named;
        }
        String system = system();
        String name = system.startsWith("win32") ? "vellum.exe" : "vellum";
        try (InputStream program = Program.class.getResourceAsStream("/vellum/program/" + system + "/" + name)) {
            if (program != null) {
                return unpack(program, name);
            }
        } catch (IOException error) {
            throw new UncheckedIOException("the program of vellum-server can't be unpacked: " + error.getMessage(), error);
        }
        for (String folder : System.getenv().getOrDefault("PATH", "").split(File.pathSeparator)) {
            if (Files.isExecutable(Path.of(folder, name))) {
                return Path.of(folder, name).toString();
            }
        }
        throw new IllegalStateException("there is no program vellum for " + system + " on the class path or on the path: "
                + "the artifact vellum-server brings it, and VELLUM_BINARY names one that is elsewhere");
    }

    /** A file of this process's own: the program is needed as long as its server runs. */
    private static String unpack(InputStream program, String name) throws IOException {
        Path folder = Files.createTempDirectory("vellum-program-");
        Path file = folder.resolve(name);
        Files.copy(program, file, StandardCopyOption.REPLACE_EXISTING);
        if (!file.toFile().setExecutable(true, true)) {
            throw new IOException(file + " can't be made executable");
        }
        // In the reverse order: the file goes before its folder.
        folder.toFile().deleteOnExit();
        file.toFile().deleteOnExit();
        return file.toString();
    }

    /** System and processor, by Node's names, as the packages have them. */
    private static String system() {
        String os = System.getProperty("os.name").toLowerCase(Locale.ROOT);
        String system = os.contains("win") && !os.contains("darwin") ? "win32" : os.contains("mac") ? "darwin" : "linux";
        String arch = System.getProperty("os.arch");
        return system + "-" + switch (arch) {
            case "amd64", "x86_64" -> "x64";
            case "aarch64", "arm64" -> "arm64";
            default -> arch;
        };
    }
}
