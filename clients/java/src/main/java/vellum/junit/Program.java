package vellum.junit;

import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.Locale;

/** Location of the server program. */
final class Program {
    private Program() {}

    /**
     * Returns the program named by VELLUM_BINARY, or the program of vellum-server on the class path, or
     * vellum on the path.
     *
     * @throws IllegalStateException if none exists
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
            throw new UncheckedIOException("cannot unpack the program of vellum-server: " + error.getMessage(), error);
        }
        for (String folder : System.getenv().getOrDefault("PATH", "").split(File.pathSeparator)) {
            if (Files.isExecutable(Path.of(folder, name))) {
                return Path.of(folder, name).toString();
            }
        }
        throw new IllegalStateException("the program vellum for " + system + " is neither on the class path nor on the path: "
                + "add the artifact vellum-server, or set VELLUM_BINARY to its path");
    }

    /** A file of this process: the program is needed while its server runs. */
    private static String unpack(InputStream program, String name) throws IOException {
        Path folder = Files.createTempDirectory("vellum-program-");
        Path file = folder.resolve(name);
        Files.copy(program, file, StandardCopyOption.REPLACE_EXISTING);
        if (!file.toFile().setExecutable(true, true)) {
            throw new IOException(file + " cannot be made executable");
        }
        // Deleted in reverse order: the file before its folder.
        folder.toFile().deleteOnExit();
        file.toFile().deleteOnExit();
        return file.toString();
    }

    /** Operating system and processor, with Node's names, as in the packages. */
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
