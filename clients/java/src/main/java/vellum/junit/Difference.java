package vellum.junit;

import java.util.ArrayList;
import java.util.List;

/** Line differences of two texts, for failure messages. */
final class Difference {
    private static final int CONTEXT = 3;
    /** For more line pairs, the difference has all lines of one text, then all lines of the second. */
    private static final long PAIRS_MAX = 4_000_000;

    private Difference() {}

    /** Lines of only the first text begin with a minus, lines of only the second with a plus. */
    static String of(String expected, String actual) {
        List<String> old = expected.lines().toList();
        List<String> now = actual.lines().toList();
        List<String> shown = new ArrayList<>();
        int[][] common = common(old, now);
        int i = 0;
        int j = 0;
        while (i < old.size() || j < now.size()) {
            if (i < old.size() && j < now.size() && old.get(i).equals(now.get(j))) {
                shown.add("  " + old.get(i++));
                j++;
            } else if (j == now.size() || i < old.size() && common[i + 1][j] >= common[i][j + 1]) {
                shown.add("- " + old.get(i++));
            } else {
                shown.add("+ " + now.get(j++));
            }
        }
        return String.join("\n", near(shown));
    }

    /** Returns the number of common lines from each pair of lines on. */
    private static int[][] common(List<String> old, List<String> now) {
        int[][] common = new int[old.size() + 1][];
        boolean tooMany = (long) old.size() * now.size() > PAIRS_MAX;
        int[] none = new int[now.size() + 1];
        for (int i = old.size(); i >= 0; i--) {
            common[i] = tooMany ? none : new int[now.size() + 1];
            for (int j = now.size() - 1; j >= 0 && i < old.size() && !tooMany; j--) {
                boolean same = old.get(i).equals(now.get(j));
                common[i][j] = same ? common[i + 1][j + 1] + 1 : Math.max(common[i + 1][j], common[i][j + 1]);
            }
        }
        return common;
    }

    /** Returns the differences with some lines of context. */
    private static List<String> near(List<String> lines) {
        List<String> near = new ArrayList<>();
        int last = -1;
        for (int at = 0; at < lines.size(); at++) {
            List<String> around = lines.subList(Math.max(0, at - CONTEXT), Math.min(lines.size(), at + CONTEXT + 1));
            if (around.stream().anyMatch(line -> !line.startsWith(" "))) {
                if (at != last + 1) {
                    near.add("  …");
                }
                near.add(lines.get(at));
                last = at;
            }
        }
        return near;
    }
}
