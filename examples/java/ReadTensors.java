// Prints the tensors of .binpb, .pbs and .tb files as JSON. Needs Java 17 or later and nothing else.
//
//     java ReadTensors.java file.pbs
//
// Numbers follow protobuf's JSON mapping: 64-bit integers are strings, and so are "NaN",
// "Infinity", "-Infinity" and "-0"; bytes are base64. The formats are those of spec/frame.md.
// A program with protobuf's library needs none of this: Tensor.parseDelimitedFrom(stream) reads a .pbs file.

import java.io.IOException;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.zip.CRC32C;

public class ReadTensors {
    /** A file that is not what it should be. */
    @SuppressWarnings("serial")
    static class Corrupt extends IOException {
        Corrupt(String what) {
            super(what);
        }
    }

    interface Element {
        String read(ByteBuffer data) throws Corrupt;
    }

    record Dtype(String name, int size, Element element) {}

    static final Map<Long, Dtype> DTYPES = Map.ofEntries(
        Map.entry(1L, new Dtype("float32", 4, d -> real(d.getFloat()))),
        Map.entry(2L, new Dtype("float64", 8, d -> real(d.getDouble()))),
        Map.entry(3L, new Dtype("int32", 4, d -> "" + d.getInt())),
        Map.entry(4L, new Dtype("uint8", 1, d -> "" + (d.get() & 0xff))),
        Map.entry(5L, new Dtype("int16", 2, d -> "" + d.getShort())),
        Map.entry(6L, new Dtype("int8", 1, d -> "" + d.get())),
        Map.entry(8L, new Dtype("complex64", 8, d -> "[" + real(d.getFloat()) + "," + real(d.getFloat()) + "]")),
        Map.entry(9L, new Dtype("int64", 8, d -> quote("" + d.getLong()))),
        Map.entry(10L, new Dtype("bool", 1, d -> truth(d.get()))),
        Map.entry(14L, new Dtype("bfloat16", 2, d -> real(Float.intBitsToFloat(d.getShort() << 16)))),
        Map.entry(17L, new Dtype("uint16", 2, d -> "" + (d.getShort() & 0xffff))),
        Map.entry(18L, new Dtype("complex128", 16, d -> "[" + real(d.getDouble()) + "," + real(d.getDouble()) + "]")),
        Map.entry(19L, new Dtype("float16", 2, d -> real(half(d.getShort())))),
        Map.entry(22L, new Dtype("uint32", 4, d -> Integer.toUnsignedString(d.getInt()))),
        Map.entry(23L, new Dtype("uint64", 8, d -> quote(Long.toUnsignedString(d.getLong())))));

    static double half(int bits) {
        int exponent = bits >> 10 & 31, fraction = bits & 1023;
        double size = exponent == 31 ? (fraction == 0 ? Double.POSITIVE_INFINITY : Double.NaN)
            : exponent == 0 ? fraction * 0x1p-24 : Math.scalb(1024.0 + fraction, exponent - 25);
        return (bits & 0x8000) == 0 ? size : -size;
    }

    static String truth(byte b) throws Corrupt {
        if (b != 0 && b != 1) throw new Corrupt("the byte " + b + " is not a valid bool");
        return b == 1 ? "true" : "false";
    }

    // ---- protobuf's wire format ---------------------------------------------

    static long varint(ByteBuffer data) throws Corrupt {
        int first = data.position();
        long value = 0;
        for (int shift = 0; shift < 70 && data.hasRemaining(); shift += 7) {
            int b = data.get();
            if (shift == 63 && (b & 0xff) > 1) throw new Corrupt("a number of more than 64 bits at byte " + first);
            value |= (long) (b & 0x7f) << shift;
            if (b >= 0) return value;
        }
        throw new Corrupt("a number is cut off at byte " + first);
    }

    /** The next `size` bytes as a buffer of their own. */
    static ByteBuffer take(ByteBuffer data, long size, String what) throws Corrupt {
        if (Long.compareUnsigned(size, data.remaining()) > 0) {
            throw new Corrupt(what + " claims " + Long.toUnsignedString(size) + " bytes where " + data.remaining()
                + " are left at byte " + data.position());
        }
        ByteBuffer part = data.slice(data.position(), (int) size).order(ByteOrder.LITTLE_ENDIAN);
        data.position(data.position() + (int) size);
        return part;
    }

    /** One field: `value` of a number, `bytes` of anything else. */
    record Field(int number, long value, ByteBuffer bytes) {
        long asNumber() throws Corrupt {
            if (bytes != null) throw new Corrupt("field " + number + " is not a number");
            return value;
        }

        ByteBuffer asBytes() throws Corrupt {
            if (bytes == null) throw new Corrupt("field " + number + " is a number");
            return bytes.duplicate().order(ByteOrder.LITTLE_ENDIAN);
        }

        String asText() throws Corrupt {
            try {
                return StandardCharsets.UTF_8.newDecoder().decode(asBytes()).toString();
            } catch (CharacterCodingException error) {
                throw new Corrupt("field " + number + " is not UTF-8");
            }
        }
    }

    static List<Field> fields(ByteBuffer data) throws Corrupt {
        List<Field> found = new ArrayList<>();
        while (data.hasRemaining()) {
            int first = data.position();
            long tag = varint(data);
            int number = (int) (tag >>> 3), wire = (int) (tag & 7);
            if (number == 0 || tag >>> 32 != 0) throw new Corrupt("no field of a message at byte " + first);
            switch (wire) {
                case 0 -> found.add(new Field(number, varint(data), null));
                case 1 -> found.add(new Field(number, 0, take(data, 8, "field " + number)));
                case 2 -> found.add(new Field(number, 0, take(data, varint(data), "field " + number)));
                case 5 -> found.add(new Field(number, 0, take(data, 4, "field " + number)));
                default -> throw new Corrupt("field " + number + " has the wire type " + wire);
            }
        }
        return found;
    }

    // ---- one message --------------------------------------------------------

    /** A tensor as the text of a JSON object, and its place among others. */
    record Found(String json, long part, long parts) {}

    static Found tensor(ByteBuffer data, boolean inner) throws Corrupt {
        long code = 0, part = 0, parts = 1;
        List<String> shape = new ArrayList<>(), path = new ArrayList<>();
        List<Field> strings = new ArrayList<>();
        Map<String, String> meta = new LinkedHashMap<>(), document = new LinkedHashMap<>();
        Map<String, String> origin = new LinkedHashMap<>(), documentOrigin = new LinkedHashMap<>();
        Long alias = null;
        Map<String, String> out = new LinkedHashMap<>();
        Map<Integer, String> texts = new LinkedHashMap<>();
        ByteBuffer content = ByteBuffer.allocate(0);
        for (Field field : fields(data)) {
            int number = field.number();
            if (inner && number >= 1000 && number < 1500 && number != 1008 && number != 1010) {
                throw new Corrupt("field " + number + " in a part of a ragged or sparse value");
            }
            switch (number) {
                case 1 -> code = field.asNumber();
                case 2 -> addShape(shape, field);
                case 4 -> content = field.asBytes();
                case 8 -> strings.add(field);
                case 1000, 1006, 1007, 1008 -> texts.put(number, field.asText());
                case 1001 -> addEntry(meta, field);
                case 1002 -> path.add(step(field));
                case 1003 -> part = field.asNumber();
                case 1004 -> parts = field.asNumber();
                case 1005 -> out.put("item", "" + field.asNumber());
                case 1009 -> addEntry(document, field);
                case 1010, 1011 -> { } // padding and a checksum that the record's own covers
                case 1014 -> addEntry(origin, field);
                case 1015 -> addEntry(documentOrigin, field);
                case 1016 -> out.put("rows", "" + field.asNumber());
                case 1017 -> alias = field.asNumber();
                default -> {
                    if (number > 4 && number < 19) {
                        throw new Corrupt("values in field " + number + ", which this example does not read");
                    }
                    if (number >= 1000 && number < 1500) throw new Corrupt("field " + number + " is of a later version");
                }
            }
        }
        out.put("shape", list(shape));
        out.put("meta", map(meta));
        out.put("origin", map(origin));
        out.put("document_origin", map(documentOrigin));
        if ("alias".equals(texts.get(1007)) != (alias != null) || (alias != null && (alias < 0 || alias >= part))) {
            throw new Corrupt("an alias must name a part that comes before it");
        }
        if (alias != null) out.put("alias", "" + alias);
        out.put("path", list(path));
        out.put("part", "" + part);
        out.put("parts", "" + parts);
        out.put("document", map(document));
        String[] names = {"name", "kind", "layout", "encoding"};
        int[] numbers = {1000, 1006, 1007, 1008};
        for (int i = 0; i < names.length; i++) {
            if (texts.containsKey(numbers[i])) out.put(names[i], quote(texts.get(numbers[i])));
        }
        addValues(out, code, shape, content, strings, texts.get(1007), texts.containsKey(1008));
        List<String> pairs = new ArrayList<>();
        out.forEach((key, value) -> pairs.add(quote(key) + ":" + value));
        return new Found("{" + String.join(",", pairs) + "}", part, parts);
    }

    static void addShape(List<String> shape, Field field) throws Corrupt {
        for (Field dim : fields(field.asBytes())) {
            if (dim.number() != 2) throw new Corrupt("the shape is unknown");
            long size = 0;
            for (Field inside : fields(dim.asBytes())) if (inside.number() == 1) size = inside.asNumber();
            if (size < 0) throw new Corrupt("a dimension is " + size);
            shape.add("" + size);
        }
    }

    static void addEntry(Map<String, String> into, Field field) throws Corrupt {
        String key = "", value = "";
        for (Field inside : fields(field.asBytes())) {
            if (inside.number() == 1) key = inside.asText();
            else if (inside.number() == 2) value = inside.asText();
        }
        if (into.put(key, value) != null) throw new Corrupt("the metadata " + quote(key) + " is stored twice");
    }

    static String step(Field field) throws Corrupt {
        for (Field inside : fields(field.asBytes())) {
            switch (inside.number()) {
                case 1: return "{\"key\":" + quote(inside.asText()) + "}";
                case 2: return "{\"number\":\"" + (inside.asNumber() >>> 1 ^ -(inside.asNumber() & 1)) + "\"}";
                case 3: return "{\"list\":" + inside.asNumber() + "}";
                case 4: return "{\"tuple\":" + inside.asNumber() + "}";
                case 5: return "\"named\""; // the key is the tensor's name
                case 6: return "{\"mask\":" + inside.asNumber() + "}"; // of a table's column
                default: break;
            }
        }
        throw new Corrupt("a path step without a kind");
    }

    static void addValues(Map<String, String> out, long code, List<String> shape, ByteBuffer content,
            List<Field> strings, String layout, boolean text) throws Corrupt {
        long count = 1;
        try {
            for (String dim : shape) count = Math.multiplyExact(count, Long.parseLong(dim));
        } catch (ArithmeticException error) {
            throw new Corrupt("a shape of " + shape + " is beyond counting");
        }
        List<String> values = new ArrayList<>();
        if (code == 7) {
            if (strings.size() != count || content.hasRemaining()) {
                throw new Corrupt(count + " strings expected, got " + strings.size());
            }
            for (Field item : strings) {
                if ("alias".equals(layout)) values.add(quote(item.asText()));
                else if (layout != null) values.add(tensor(item.asBytes(), true).json());
                else values.add(quote(text ? item.asText() : base64(item.asBytes())));
            }
            out.put("dtype", quote(layout == null ? "string" : layout));
            out.put(layout == null || layout.equals("alias") ? "values" : "pieces", list(values));
            return;
        }
        if (code == 0 || !strings.isEmpty() || layout != null) {
            throw new Corrupt("not a tensor: no dtype, or strings among numbers");
        }
        Dtype dtype = DTYPES.get(code);
        if (dtype == null) {
            out.put("dtype", quote("code " + code));
            out.put("content", quote(base64(content)));
            return;
        }
        if (count > Long.MAX_VALUE / 16 || content.remaining() != count * dtype.size()) {
            throw new Corrupt(dtype.name() + " " + shape + " does not take " + content.remaining() + " bytes");
        }
        while (content.hasRemaining()) values.add(dtype.element().read(content));
        out.put("dtype", quote(dtype.name()));
        out.put("values", list(values));
    }

    // ---- JSON ---------------------------------------------------------------

    static String real(double x) {
        if (x == 0 && 1 / x < 0) return "\"-0\"";
        return Double.isNaN(x) || Double.isInfinite(x) ? quote("" + x) : "" + x;
    }

    static String base64(ByteBuffer raw) {
        return StandardCharsets.ISO_8859_1.decode(Base64.getEncoder().encode(raw)).toString();
    }

    static String quote(String text) {
        StringBuilder out = new StringBuilder("\"");
        for (char c : text.toCharArray()) {
            if (c == '"' || c == '\\') out.append('\\').append(c);
            else if (c < ' ') out.append(String.format("\\u%04x", (int) c));
            else out.append(c);
        }
        return out.append('"').toString();
    }

    static String list(List<String> items) {
        return "[" + String.join(",", items) + "]";
    }

    static String map(Map<String, String> items) {
        List<String> pairs = new ArrayList<>();
        items.forEach((key, value) -> pairs.add(quote(key) + ":" + quote(value)));
        return "{" + String.join(",", pairs) + "}";
    }

    // ---- files --------------------------------------------------------------

    static int maskedCrc(ByteBuffer data) {
        CRC32C crc = new CRC32C();
        crc.update(data.duplicate());
        return Integer.rotateRight((int) crc.getValue(), 15) + 0xa282ead8;
    }

    /** The payload of the next record of a .tb file. */
    static ByteBuffer record(ByteBuffer data) throws Corrupt {
        int at = data.position();
        ByteBuffer length = take(data, 8, "a record's length");
        if (take(data, 4, "a checksum").getInt() != maskedCrc(length)) {
            throw new Corrupt("the checksum of a record's length differs at byte " + at);
        }
        ByteBuffer payload = take(data, length.getLong(), "a record");
        if (take(data, 4, "a checksum").getInt() != maskedCrc(payload)) {
            throw new Corrupt("the checksum of a record's data differs at byte " + at);
        }
        return payload;
    }

    static List<String> tensors(ByteBuffer data, String path) throws Corrupt {
        List<String> found = new ArrayList<>();
        long due = 0, parts = 1;
        boolean framed = path.endsWith(".tb"), delimited = path.endsWith(".pbs");
        while (data.hasRemaining() || !framed && !delimited && found.isEmpty()) {
            ByteBuffer payload = framed ? record(data)
                : take(data, delimited ? varint(data) : data.remaining(), "a message");
            if (!payload.hasRemaining()) throw new Corrupt("a message of no bytes at byte " + data.position());
            Found next = tensor(payload, false);
            if (next.part() != due || due >= next.parts() || due > 0 && next.parts() != parts) {
                throw new Corrupt("part " + next.part() + " of " + next.parts() + " where part " + due + " was due");
            }
            parts = next.parts();
            due = (due + 1) % parts;
            found.add(next.json());
        }
        if (due > 0) throw new Corrupt("the file ends after " + due + " of " + parts + " tensors of an object");
        return found;
    }

    public static void main(String[] paths) {
        if (paths.length == 0) System.err.println("usage: java ReadTensors.java file.binpb | file.pbs | file.tb ...");
        int status = paths.length == 0 ? 2 : 0;
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        for (String path : paths) {
            try {
                ByteBuffer data = ByteBuffer.wrap(Files.readAllBytes(Path.of(path))).order(ByteOrder.LITTLE_ENDIAN);
                out.print("[" + String.join(",\n", tensors(data, path)) + "]\n");
            } catch (Corrupt error) {
                System.err.println(path + ": " + error.getMessage());
                status = 1;
            } catch (IOException error) {
                System.err.println(path + ": " + error);
                status = 1;
            }
        }
        System.exit(status);
    }
}
