//! Sizes in bytes, as users write them: `512`, `64KiB`, `8MiB`, `1GiB`, `100kB`.

/// Parses a size with an optional unit into bytes.
///
/// Binary units (`KiB`, `MiB`, `GiB`, `TiB`) count in 1024s, decimal ones (`kB`, `MB`, `GB`, `TB`) in 1000s.
///
/// # Errors
/// A sentence that names the text and the accepted forms.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let trimmed = text.trim();
    let digits = trimmed.bytes().take_while(u8::is_ascii_digit).count();
    let unit = trimmed[digits..].trim();
    let factor: u64 = match unit {
        "" | "B" => 1,
        "kB" | "KB" => 1000,
        "MB" => 1000_u64.pow(2),
        "GB" => 1000_u64.pow(3),
        "TB" => 1000_u64.pow(4),
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "TiB" => 1 << 40,
        _ => return Err(size_error(text)),
    };
    let number: u64 = trimmed[..digits].parse().map_err(|_| size_error(text))?;
    number.checked_mul(factor).ok_or_else(|| size_error(text))
}

/// Writes a size with the largest binary unit that keeps it readable, e.g. `1.5MiB`.
pub fn format_size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if value.fract() == 0.0 {
        format!("{value}{}", UNITS[unit])
    } else {
        format!("{value:.1}{}", UNITS[unit])
    }
}

fn size_error(text: &str) -> String {
    format!("expected a size such as 64KiB, 8MiB or 1GiB, got {text:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_binary_and_decimal() {
        for (text, bytes) in [("0", 0), ("512", 512), ("64KiB", 65536), ("1 MiB", 1 << 20), ("3kB", 3000)] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in ["", "KiB", "-1", "1.5MiB", "12parsecs", "99999999999TiB"] {
            assert!(parse_size(text).is_err(), "{text} should be refused");
        }
    }

    #[test]
    fn sizes_print_with_the_largest_unit() {
        assert_eq!(format_size(65536), "64KiB");
        assert_eq!(format_size(1_572_864), "1.5MiB");
        assert_eq!(format_size(7), "7B");
    }
}
