#include "millstream/codec/packed.h"

#include <algorithm>
#include <array>
#include <concepts>
#include <set>

#include "millstream/codec/layout.h"
#include "millstream/core/characters.h"

namespace millstream {
namespace {

constexpr std::string_view kMagic = "MSPACKED";
constexpr std::uint32_t kVersion = 1;
constexpr std::int64_t kAlign = 64;

Field parse_field(ByteReader& reader) {
  Field field;
  const std::int64_t name_at = reader.offset() + 2;
  field.name = reader.text(reader.little<std::uint16_t>("a length"), "a name");
  if (!is_utf8(field.name)) {
    reader.fail(name_at, "a name in UTF-8", quote_bytes(field.name));
  }
  const std::int64_t dtype_at = reader.offset();
  const std::string_view dtype =
      reader.text(reader.little<std::uint8_t>("a length"), "a dtype");
  try {
    field.dtype = dtype_named(dtype);
  } catch (const ArgumentError&) {
    reader.fail(dtype_at, "the name of a dtype", quote_bytes(dtype));
  }
  const std::int64_t rank_at = reader.offset();
  const auto rank = reader.little<std::uint8_t>("a rank");
  if (rank > Shape::kMaxRank) {
    reader.fail(rank_at, text("at most ", Shape::kMaxRank, " dimensions"), int{rank});
  }
  std::array<std::int64_t, Shape::kMaxRank> extents{};
  for (std::size_t axis = 0; axis < rank; ++axis) {
    extents[axis] = reader.size("an extent");
  }
  field.shape = stored_shape(reader, rank_at + 1, std::span(extents).first(rank));
  return field;
}

template <std::unsigned_integral T>
void put(std::string& to, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    to += static_cast<char>(value >> 8 * i & 0xFF);
  }
}

}  // namespace

std::int64_t record_bytes(const Schema& schema) {
  std::int64_t bytes = 0;
  for (const Field& field : schema) {
    if (__builtin_add_overflow(bytes, byte_size(field), &bytes)) bytes = -1;
    if (bytes < 0) break;
  }
  if (bytes <= 0)
    throw ArgumentError("packed records need at least one byte and fewer than 2^63");
  return bytes;
}

PackedLayout parse_packed(ByteReader& reader, std::int64_t size) {
  const std::int64_t start = reader.offset();
  const std::string_view magic = reader.text(8, "the magic");
  if (magic != kMagic) {
    reader.fail(start, text("the magic ", quote_bytes(kMagic)), quote_bytes(magic));
  }
  const auto version = reader.little<std::uint32_t>("a version");
  if (version != kVersion) {
    reader.fail(start + 8, text("version ", kVersion), version);
  }
  const auto fields = reader.little<std::uint32_t>("a count of fields");
  PackedLayout layout;
  std::set<std::string> names;
  layout.records = reader.size("a count of records");
  layout.offset = reader.size("an offset");
  for (std::uint32_t i = 0; i < fields; ++i) {
    const std::int64_t at = reader.offset();
    const Field& field = layout.schema.emplace_back(parse_field(reader));
    if (!names.insert(field.name).second) {
      reader.fail(at, "different field names", text(quote_bytes(field.name), " twice"));
    }
  }
  if (layout.offset < reader.offset() - start || layout.offset > kPackedHeader) {
    reader.fail(start + 24,
                text("records at ", reader.offset() - start, " to ", kPackedHeader),
                layout.offset);
  }
  std::int64_t record = 0;
  try {
    record = record_bytes(layout.schema);
  } catch (const ArgumentError& error) {
    reader.fail(start + 32, "a schema of records", error.what());
  }
  if (size < layout.offset) {
    reader.fail(size, text("records at ", layout.offset), "the end of the file");
  }
  const std::int64_t there = size - layout.offset;
  const std::int64_t whole = there / record;
  if (whole != layout.records || there % record != 0) {
    reader.fail(layout.offset + std::min(whole, layout.records) * record,
                text(layout.records, " records of ", record, " bytes each"),
                text(whole, " and ", there % record, " bytes"));
  }
  return layout;
}

std::string packed_header(const Schema& schema, std::int64_t records) {
  record_bytes(schema);
  std::string fields;
  for (const Field& field : schema) {
    if (field.name.size() > 0xFFFF)
      throw ArgumentError(
          text("the name of a field must have at most 65,535 bytes, not ",
               field.name.size()));
    put(fields, static_cast<std::uint16_t>(field.name.size()));
    fields += field.name;
    const std::string_view dtype = name(field.dtype);
    put(fields, static_cast<std::uint8_t>(dtype.size()));
    fields += dtype;
    put(fields, static_cast<std::uint8_t>(field.shape.rank()));
    for (const std::int64_t extent : field.shape.extents()) {
      put(fields, static_cast<std::uint64_t>(extent));
    }
  }
  std::string header(kMagic);
  const auto bytes = static_cast<std::int64_t>(header.size() + 24 + fields.size());
  const std::int64_t offset = (bytes + kAlign - 1) / kAlign * kAlign;
  if (offset > kPackedHeader)
    throw ArgumentError(text("the header of a packed file must have at most ",
                             kPackedHeader, " bytes, not ", offset,
                             ": use fewer or shorter field names"));
  put(header, kVersion);
  put(header, static_cast<std::uint32_t>(schema.size()));
  put(header, static_cast<std::uint64_t>(records));
  put(header, static_cast<std::uint64_t>(offset));
  header += fields;
  header.resize(static_cast<std::size_t>(offset), '\0');
  return header;
}

}  // namespace millstream
