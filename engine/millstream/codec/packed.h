#pragma once

#include <cstdint>
#include <string>

#include "millstream/core/schema.h"
#include "millstream/io/byte_reader.h"

namespace millstream {

/// What a file of packed records holds: records of one size back to back, each its
/// fields back to back.
struct PackedLayout {
  Schema schema;
  std::int64_t records = 0;
  std::int64_t offset = 0;  // of the first record
};

/// Headers are no longer than this.
inline constexpr std::int64_t kPackedHeader = std::int64_t{1} << 20;

/// Bytes of one record. Throws `ArgumentError` if there are none or too many.
std::int64_t record_bytes(const Schema& schema);

/// Reads the header of a packed file of `size` bytes; `reader` holds its beginning.
/// Throws `DataError` unless the records are exactly as many as it promises.
///
/// All numbers are little-endian. "MSPACKED", u32 version 1, u32 fields, u64 records,
/// u64 offset of the first record, a multiple of 64; then for each field u16 length and
/// name, u8 length and dtype, u8 rank, u64 extents; then zeros.
PackedLayout parse_packed(ByteReader& reader, std::int64_t size);

/// Such a header. Throws `ArgumentError` for a schema that it cannot hold.
std::string packed_header(const Schema& schema, std::int64_t records);

}  // namespace millstream
