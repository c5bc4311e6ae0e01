use proptest::prelude::*;

use super::*;

#[test]
fn patterns() {
    let rows = "'payments' | 'Payments' | 'pay' | '' | null";
    check("s LIKE 'pay%'", "s: string", rows, "bool: true | false | true | false | null");
    check("s NOT LIKE 'pay%'", "s: string", rows, "bool: false | true | false | true | null");
    check("s ILIKE 'PAY%'", "s: string", rows, "bool: true | true | true | false | null");
    check("s NOT ILIKE '%MENTS'", "s: string", rows, "bool: false | false | true | true | null");
    check("s LIKE '%ment_'", "s: string", rows, "bool: true | true | false | false | null");
    check("s LIKE 'pay'", "s: string", rows, "bool: false | false | true | false | null");
    check("s LIKE ''", "s: string", rows, "bool: false | false | false | true | null");
    check("s LIKE '%'", "s: string", rows, "bool: true | true | true | true | null");
    check("s LIKE NULL", "s: string", rows, "bool: null | null | null | null | null");
    check("s LIKE '_ü_e'", "s: string", "'güte' | 'gute'", "bool: true | false");
    check(
        "s LIKE p",
        "s: string, p: string",
        "'abc', 'a%' | 'abc', 'b%' | 'abc', null",
        "bool: true | false | null",
    );
    check("s LIKE 'a.c'", "s: string", "'abc' | 'a.c'", "bool: false | true");
}

#[test]
fn escapes_in_patterns() {
    check("s LIKE '100!%' ESCAPE '!'", "s: string", "'100%' | '1000'", "bool: true | false");
    check("s LIKE '100\\%'", "s: string", "'100%' | '1000'", "bool: true | false");
    check("s LIKE 'a!!%' ESCAPE '!'", "s: string", "'a!b' | 'ab'", "bool: true | false");
    check("s LIKE 'a\\b' ESCAPE '!'", "s: string", "'a\\b' | 'ab'", "bool: true | false");
    check("s LIKE 'x%' ESCAPE '\\'", "s: string", "'xy'", "bool: true");
}

#[test]
fn cases_lengths_and_trims() {
    check("lower(s)", "s: string", "'ÄBC' | null", "string: 'äbc' | null");
    check("upper(s)", "s: string", "'straße' | ''", "string: 'STRASSE' | ''");
    check("length(s)", "s: string", "'grüße' | '' | null", "int64: 5 | 0 | null");
    check("char_length(s)", "s: string", "'grüße'", "int64: 5");
    check("length(b)", "b: bytes", "'grüße'", "int64: 7");
    check("trim(s)", "s: string", "'  a b  '", "string: 'a b'");
    check("ltrim(s)", "s: string", "'  a '", "string: 'a '");
    check("rtrim(s)", "s: string", "'  a '", "string: '  a'");
    check("trim(s, 'xy')", "s: string", "'xyaxyx'", "string: 'a'");
    check("TRIM(BOTH 'x' FROM s)", "s: string", "'xax'", "string: 'a'");
    check("TRIM(LEADING 'x' FROM s)", "s: string", "'xax'", "string: 'ax'");
    check("TRIM(TRAILING 'x' FROM s)", "s: string", "'xax'", "string: 'xa'");
    check("trim(s, t)", "s: string, t: string", "'xax', 'x' | 'xax', null", "string: 'a' | null");
}

#[test]
fn substrings_count_characters_from_one() {
    check("substr(s, 2)", "s: string", "'grüße' | ''", "string: 'rüße' | ''");
    check("substr(s, 2, 2)", "s: string", "'grüße' | 'g' | null", "string: 'rü' | '' | null");
    check("substring(s, 3, 1)", "s: string", "'grüße'", "string: 'ü'");
    check("SUBSTRING(s FROM 2 FOR 3)", "s: string", "'grüße'", "string: 'rüß'");
    check("SUBSTRING(s FROM 4)", "s: string", "'grüße'", "string: 'ße'");
    check("SUBSTRING(s FOR 2)", "s: string", "'grüße'", "string: 'gr'");
    check(
        "substr(s, n, c)",
        "s: string, n: int64, c: int64",
        "'abc', 0, 2 | 'abc', -1, 3 | 'abc', 2, -1 | 'abc', 9, 1 | 'abc', -9223372036854775808, 9223372036854775807",
        "string: 'a' | 'a' | '' | '' | ''",
    );
}

#[test]
fn searches_and_replacements() {
    check("starts_with(s, 'ab')", "s: string", "'abc' | 'xab' | null", "bool: true | false | null");
    check("ends_with(s, 'bc')", "s: string", "'abc' | 'bcx'", "bool: true | false");
    check("contains(s, 'b')", "s: string", "'abc' | 'ac'", "bool: true | false");
    check("contains(s, t)", "s: string, t: string", "'abc', '' | 'abc', null", "bool: true | null");
    check("strpos(s, 'ß')", "s: string", "'grüße' | 'x'", "int64: 4 | 0");
    check("strpos(s, '')", "s: string", "'x'", "int64: 1");
    check("replace(s, 'a', 'bb')", "s: string", "'banana' | null", "string: 'bbbnbbnbb' | null");
    check("replace(s, '', 'x')", "s: string", "'ab'", "string: 'ab'");
}

#[test]
fn joins_of_texts() {
    check("a || b", "a: string, b: string", "'x', 'y' | null, 'y' | '', ''", "string: 'xy' | null | ''");
    check("a || '-' || n", "a: string, n: int64", "'x', 7", "string: 'x-7'");
    check(
        "concat(a, b)",
        "a: string, b: string",
        "'x', 'y' | null, 'y' | null, null",
        "string: 'xy' | 'y' | ''",
    );
    check("concat(n, '/', p)", "n: int64, p: bool", "7, true | null, false", "string: '7/true' | '/false'");
    constant("'it''s'", "string: 'it's'");
    constant("'a' || NULL", "string: null");
    constant("concat('a', NULL)", "string: 'a'");
}

proptest! {
    /// A text that is searched for may be constant or come with the record.
    #[test]
    fn replace_is_that_of_the_standard_library(text in "[aßb]{0,40}", from in "[aßb]{1,3}", to in "[aßb]{0,3}") {
        let schema = Schema::new(["s", "f", "t"].map(|name| Field::new(name, DataType::String)));
        let column = |text: &str| -> ArrayRef { Arc::new(StringViewArray::from_iter_values([text])) };
        let columns = vec![column(&text), column(&from), column(&to)];
        let records = RecordBatch::try_new(Arc::clone(schema.arrow()), columns).unwrap();
        for expr in ["replace(s, f, t)".to_owned(), format!("replace(s, '{from}', '{to}')")] {
            let array = Expr::parse(&expr).unwrap().bind(&schema).unwrap().values(&records).unwrap().array;
            prop_assert_eq!(Value::at(&array, 0), Value::String(text.replace(&from, &to)), "{}", expr);
        }
    }
}

#[test]
fn the_left_and_the_right_of_a_text() {
    let (fields, rows) = (
        "s: string, n: int64",
        "'güte', 2 | 'güte', -1 | 'güte', 9 | 'güte', -9 | 'güte', 0 | '', 1 | null, 1",
    );
    check("left(s, n)", fields, rows, "string: 'gü' | 'güt' | 'güte' | '' | '' | '' | null");
    check("right(s, n)", fields, rows, "string: 'te' | 'üte' | 'güte' | '' | '' | '' | null");
    constant("left('ab', -9223372036854775808) || right('ab', -9223372036854775808)", "string: ''");
    constant("left(NULL, 1)", "string: null");
}

#[test]
fn parts_between_delimiters() {
    check(
        "split_part(s, ',', n)",
        "s: string, n: int64",
        "'a,b,c', 1 | 'a,b,c', 3 | 'a,b,c', 4 | 'a,b,c', -1 | 'a,b,c', -3 | 'a,b,c', -4 | 'a,b,c', 0 | 'a', 1 | ',', 1 | null, 1",
        "string: 'a' | 'c' | '' | 'c' | 'a' | '' | null | 'a' | '' | null",
    );
    check(
        "split_part(s, d, 2)",
        "s: string, d: string",
        "'a--b', '--' | 'ab', '' | 'a', null",
        "string: 'b' | '' | null",
    );
    check("split_part(s, '', -1)", "s: string", "'ab'", "string: 'ab'");
}

#[test]
fn regular_expressions() {
    let rows = "'payments' | 'Payments' | 'pay' | '' | null";
    check("s ~ '^pay.+s$'", "s: string", rows, "bool: true | false | false | false | null");
    check("s !~ '^pay.+s$'", "s: string", rows, "bool: false | true | true | true | null");
    check("s ~* '^PAY'", "s: string", rows, "bool: true | true | true | false | null");
    check("s !~* '^PAY'", "s: string", rows, "bool: false | false | false | true | null");
    check("regexp_like(s, 'a[xy]')", "s: string", rows, "bool: true | true | true | false | null");
    check("s ~ NULL", "s: string", "'a'", "bool: null");
    check(
        "s ~ 'a' || 'b' AND s ~ '^.b' OR s = 'c'",
        "s: string",
        "'ab' | 'xab' | 'c'",
        "bool: true | false | true",
    );
    check("NOT s ~ '^\\w+@\\w+\\.[a-z]{2,}$'", "s: string", "'ü@b.eu' | 'a@b'", "bool: false | true");
    check("regexp_extract(s, '\\d+')", "s: string", "'a12b3' | 'a' | null", "string: '12' | null | null");
    check(
        "regexp_extract(s, '(\\w+)=(\\d+)?', 2)",
        "s: string",
        "'a=12' | 'a=' | 'a'",
        "string: '12' | null | null",
    );
    check("regexp_extract(s, NULL, 7)", "s: string", "'a'", "string: null");
}
