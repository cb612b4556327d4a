#include "millstream/codec/zip.h"

#include "millstream/core/characters.h"

namespace millstream {
namespace {

constexpr std::string_view kEnd = "PK\x05\x06";
constexpr std::uint32_t kEnd64 = 0x06064B50;
constexpr std::string_view kLocator64 = "PK\x06\x07";
constexpr std::uint32_t kEntry = 0x02014B50;
constexpr std::uint32_t kMember = 0x04034B50;
constexpr std::int64_t kEndBytes = 22;
constexpr std::int64_t kEnd64Bytes = 56;
constexpr std::int64_t kLocatorBytes = 20;
constexpr std::uint32_t kLarge = 0xFFFFFFFF;  // the value is in the 64-bit fields

void expect_signature(ByteReader& reader, std::uint32_t wanted, std::string_view what) {
  const std::int64_t at = reader.offset();
  const auto found = reader.little<std::uint32_t>(what);
  if (found != wanted) reader.fail(at, text(what, ", signature ", wanted), found);
}

/// Reads the 64-bit sizes and the 64-bit offset from the extra fields.
void read_large(ByteReader& reader, std::int64_t extra_bytes, bool size, bool packed,
                bool header, ZipMember& member) {
  const std::int64_t end = reader.offset() + extra_bytes;
  bool found = false;
  while (reader.offset() + 4 <= end) {
    const auto id = reader.little<std::uint16_t>("an extra field");
    const auto bytes = reader.little<std::uint16_t>("an extra field");
    const std::int64_t next = reader.offset() + bytes;
    if (next > end) reader.fail(reader.offset(), "an extra field", "its end");
    if (id == 1 && !found) {
      found = true;
      const std::int64_t wanted = 8 * (int{size} + int{packed} + int{header});
      if (bytes < wanted) {
        reader.fail(reader.offset(), text(wanted, " bytes of 64-bit sizes"), bytes);
      }
      if (size) member.size = reader.size("a size");
      if (packed) member.packed = reader.size("a packed size");
      if (header) member.header = reader.size("an offset");
    }
    reader.take(next - reader.offset(), "an extra field");
  }
  reader.take(end - reader.offset(), "extra fields");
  if ((size || packed || header) && !found) {
    reader.fail(end, "64-bit sizes", "no such extra field");
  }
}

}  // namespace

ZipDirectory find_zip_directory(std::span<const std::byte> tail,
                                const std::string& name, std::int64_t size) {
  const auto bytes = static_cast<std::int64_t>(tail.size());
  const std::int64_t base = size - bytes;
  const std::string_view view(reinterpret_cast<const char*>(tail.data()), tail.size());
  const auto found =
      bytes < kEndBytes ? view.npos
                        : view.rfind(kEnd, static_cast<std::size_t>(bytes - kEndBytes));
  if (found == view.npos) {
    throw DataError({.file = name,
                     .offset = base,
                     .expected = "the end record of a zip file",
                     .found = text("none in the last ", bytes, " bytes")});
  }
  const auto end = static_cast<std::int64_t>(found);
  ByteReader reader(tail.subspan(found), name, base + end);
  reader.take(10, "the end record");
  ZipDirectory directory;
  directory.members = reader.little<std::uint16_t>("a count");
  directory.size = reader.little<std::uint32_t>("a size");
  directory.offset = reader.little<std::uint32_t>("an offset");
  std::int64_t last = base + end;  // where the directory must end

  const std::int64_t locator = end - kLocatorBytes;
  if (locator >= 0 &&
      view.substr(static_cast<std::size_t>(locator)).starts_with(kLocator64)) {
    ByteReader finder(tail.subspan(static_cast<std::size_t>(locator)), name,
                      base + locator);
    finder.take(8, "the 64-bit locator");
    const std::int64_t at = finder.size("an offset");
    if (at < base || at > base + locator - kEnd64Bytes) {
      finder.fail(base + locator + 8, "the offset of the 64-bit end record", at);
    }
    ByteReader large(tail.subspan(static_cast<std::size_t>(at - base)), name, at);
    expect_signature(large, kEnd64, "the 64-bit end record");
    large.take(28, "the 64-bit end record");
    directory.members = large.size("a count");
    directory.size = large.size("a size");
    directory.offset = large.size("an offset");
    last = at;
  }
  if (directory.size > last || directory.offset > last - directory.size) {
    reader.fail(base + end, text("a directory that ends before ", last),
                text(directory.size, " bytes at ", directory.offset));
  }
  return directory;
}

std::vector<ZipMember> parse_zip_directory(ByteReader& reader,
                                           const ZipDirectory& directory) {
  std::vector<ZipMember> members;
  for (std::int64_t i = 0; i < directory.members; ++i) {
    expect_signature(reader, kEntry, "a directory entry");
    reader.take(4, "versions");
    const auto flags = reader.little<std::uint16_t>("flags");
    ZipMember member;
    member.encrypted = (flags & 1) != 0;
    member.method = reader.little<std::uint16_t>("a method");
    reader.take(4, "a time");
    member.crc = reader.little<std::uint32_t>("a CRC");
    const auto packed = reader.little<std::uint32_t>("a packed size");
    const auto size = reader.little<std::uint32_t>("a size");
    const auto name_bytes = reader.little<std::uint16_t>("a length");
    const auto extra_bytes = reader.little<std::uint16_t>("a length");
    const auto comment_bytes = reader.little<std::uint16_t>("a length");
    reader.take(8, "attributes");
    const auto header = reader.little<std::uint32_t>("an offset");
    member.name = reader.text(name_bytes, "a name");
    member.packed = packed;
    member.size = size;
    member.header = header;
    read_large(reader, extra_bytes, size == kLarge, packed == kLarge, header == kLarge,
               member);
    reader.take(comment_bytes, "a comment");
    members.push_back(std::move(member));
  }
  return members;
}

std::int64_t zip_member_data(ByteReader& reader, const ZipMember& member,
                             std::int64_t size) {
  const std::int64_t start = reader.offset();
  const std::string shown = quote_bytes(member.name);
  expect_signature(reader, kMember, text("the header of ", shown));
  if (member.encrypted) {
    reader.fail(start, text("a member ", shown, " without encryption"),
                "an encrypted one");
  }
  if (member.method != kZipStored && member.method != kZipDeflated) {
    reader.fail(start, text(shown, " stored (0) or deflated (8)"), member.method);
  }
  if (member.method == kZipStored && member.packed != member.size) {
    reader.fail(start, text(member.size, " stored bytes of ", shown), member.packed);
  }
  reader.take(22, "a member's header");
  const auto name_bytes = reader.little<std::uint16_t>("a length");
  const auto extra_bytes = reader.little<std::uint16_t>("a length");
  reader.take(name_bytes, "a name");
  reader.take(extra_bytes, "extra fields");
  const std::int64_t data = reader.offset();
  if (member.packed > size - data) {
    reader.fail(data, text(member.packed, " bytes of ", shown),
                text(size - data, " bytes"));
  }
  return data;
}

}  // namespace millstream
