#include "millstream/codec/tar.h"

#include <algorithm>

#include "millstream/core/characters.h"

namespace millstream {
namespace {

/// The text of a field, up to its first zero.
std::string_view text_of(std::string_view field) {
  return field.substr(0, std::min(field.find('\0'), field.size()));
}

/// Parses a number: octal digits between spaces, or big-endian bytes after 0x80.
std::int64_t number(const ByteReader& reader, std::int64_t at, std::string_view field) {
  std::int64_t value = 0;
  if (!field.empty() && field.front() == '\x80') {
    for (const char c : field.substr(1)) {
      if (value >> 52 != 0) reader.fail(at, "a number below 2^60", "a larger one");
      value = value << 8 | static_cast<unsigned char>(c);
    }
    return value;
  }
  std::string_view digits = text_of(field);
  while (digits.starts_with(' ')) digits.remove_prefix(1);
  while (digits.ends_with(' ')) digits.remove_suffix(1);
  for (const char c : digits) {
    if (c < '0' || c > '7') reader.fail(at, "an octal number", quote_bytes(digits));
    value = value << 3 | (c - '0');  // at most 12 digits
  }
  return value;
}

}  // namespace

std::optional<TarEntry> parse_tar_header(ByteReader& reader) {
  constexpr std::size_t kSum = 148;
  constexpr std::size_t kSumBytes = 8;
  const std::int64_t start = reader.offset();
  const std::string_view block = reader.text(kTarBlock, "a tar header");
  if (block.find_first_not_of('\0') == std::string_view::npos) return std::nullopt;
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < block.size(); ++i) {
    const bool itself = i >= kSum && i < kSum + kSumBytes;
    sum += itself ? ' ' : static_cast<unsigned char>(block[i]);
  }
  const std::int64_t promised =
      number(reader, start + static_cast<std::int64_t>(kSum), block.substr(kSum, 8));
  if (sum != promised) {
    reader.fail(start, text("a tar header with checksum ", promised), sum);
  }
  TarEntry entry;
  entry.name = text_of(block.substr(0, 100));
  if (block.substr(257, 5) == "ustar") {
    const std::string_view prefix = text_of(block.substr(345, 155));
    if (!prefix.empty() && block[262] == '\0')
      entry.name = text(prefix, "/", entry.name);
  }
  const char type = block[156];
  entry.is_file = type == '0' || type == '\0';
  entry.size = number(reader, start + 124, block.substr(124, 12));
  return entry;
}

}  // namespace millstream
