package thalweg.bench;

import java.util.Map;
import java.util.TreeMap;

/** Options of a program, {@code --name value} each. */
final class Options {

    private final Map<String, String> values;

    private Options(Map<String, String> values) {
        this.values = values;
    }

    /** Ends the program with a word about usage if an option is not one of {@code defaults}, or has no value. */
    static Options parse(String program, Map<String, String> defaults, String[] args) {
        Map<String, String> values = new TreeMap<>(defaults);
        for (int i = 0; i < args.length; i += 2) {
            if (!defaults.containsKey(args[i]) || i + 1 == args.length) {
                usage(program, args[i], defaults);
            }
            values.put(args[i], args[i + 1]);
        }
        for (Map.Entry<String, String> option : values.entrySet()) {
            if (option.getValue().isEmpty()) {
                usage(program, option.getKey(), defaults);
            }
        }
        return new Options(values);
    }

    private static void usage(String program, String option, Map<String, String> defaults) {
        StringBuilder usage = new StringBuilder("usage: run.sh " + program);
        for (Map.Entry<String, String> each : new TreeMap<>(defaults).entrySet()) {
            String value = each.getValue();
            String name = each.getKey();
            usage.append(' ').append(value.isEmpty() ? name + " ..." : "[" + name + " " + value + "]");
        }
        System.err.println(program + ": " + option + " is no option, or has no value");
        System.err.println(usage);
        System.exit(2);
    }

    String text(String name) {
        return values.get(name);
    }

    long number(String name) {
        return Long.parseLong(values.get(name));
    }

    boolean flag(String name) {
        return switch (values.get(name)) {
            case "on" -> true;
            case "off" -> false;
            default -> throw new IllegalArgumentException(name + " is on or off");
        };
    }
}
