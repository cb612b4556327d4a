#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace millstream {

/// Whether Python would decode `bytes` as UTF-8: no surrogates, no overlong encodings.
inline bool is_utf8(std::string_view bytes) noexcept {
  constexpr std::array<std::uint32_t, 4> kLeast = {0, 0x80, 0x800, 0x10000};
  for (std::size_t i = 0; i < bytes.size();) {
    const auto lead = static_cast<std::uint8_t>(bytes[i++]);
    if (lead < 0x80) continue;
    if (lead < 0xC2 || lead > 0xF4) return false;
    const std::size_t more = lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : 3;
    std::uint32_t code = lead & (0x3Fu >> more);
    for (std::size_t j = 0; j < more; ++j, ++i) {
      const auto next = static_cast<std::uint8_t>(i < bytes.size() ? bytes[i] : 0);
      if ((next & 0xC0) != 0x80) return false;
      code = code << 6 | (next & 0x3Fu);
    }
    const bool surrogate = 0xD800 <= code && code < 0xE000;
    if (code < kLeast[more] || code > 0x10FFFF || surrogate) return false;
  }
  return true;
}

/// Makes bytes of a file printable for a message. Control characters and backslashes
/// become \x and two hex digits; so does every byte above 127 if the bytes are not
/// valid UTF-8.
inline std::string escaped(std::string_view bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  const bool is_text = is_utf8(bytes);
  std::string to;
  for (const char c : bytes) {
    const auto byte = static_cast<std::uint8_t>(c);
    if ((' ' <= c && c <= '~' && c != '\\') || (byte >= 0x80 && is_text)) {
      to += c;
    } else {
      to += {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
    }
  }
  return to;
}

/// `escaped(bytes)` in single quotes.
inline std::string quote_bytes(std::string_view bytes) {
  return std::string("'").append(escaped(bytes)).append("'");
}

}  // namespace millstream
