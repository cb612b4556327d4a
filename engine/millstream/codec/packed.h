#pragma once

#include <cstdint>
#include <string>

#include "millstream/core/schema.h"
#include "millstream/io/byte_reader.h"

namespace millstream {

/// The layout of a file of packed records: contiguous records of one size, each of
/// which holds its fields back to back.
struct PackedLayout {
  Schema schema;
  std::int64_t records = 0;
  std::int64_t offset = 0;  // of the first record in the file
};

/// The length of the longest header.
inline constexpr std::int64_t kPackedHeader = std::int64_t{1} << 20;

/// The bytes of one record. Throws `ArgumentError` if there are none or too many.
std::int64_t record_bytes(const Schema& schema);

/// Parses the header of a packed file of `size` bytes. `reader` holds the beginning of
/// the file. Throws `DataError` unless the file has exactly the records that the header
/// announces.
///
/// All numbers are little-endian. The header is "MSPACKED", u32 version 1, u32 number
/// of fields, u64 number of records, u64 offset of the first record (a multiple of 64).
/// Then each field has a u16 length and its name, a u8 length and its dtype, a u8 rank
/// and the u64 extents. Zeros pad the header up to the first record.
PackedLayout parse_packed(ByteReader& reader, std::int64_t size);

/// Returns the header of a packed file. Throws `ArgumentError` for a schema that does
/// not fit into one.
std::string packed_header(const Schema& schema, std::int64_t records);

}  // namespace millstream
