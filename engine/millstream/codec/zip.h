#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "millstream/io/byte_reader.h"

namespace millstream {

/// The position of the directory of a zip file.
struct ZipDirectory {
  std::int64_t members = 0;
  std::int64_t size = 0;    // bytes
  std::int64_t offset = 0;  // in the file
};

inline constexpr std::uint16_t kZipStored = 0;
inline constexpr std::uint16_t kZipDeflated = 8;

/// One file in a zip file.
struct ZipMember {
  std::string name;
  bool encrypted = false;
  std::uint16_t method = 0;  // kZipStored, kZipDeflated or an unsupported one
  std::uint32_t crc = 0;
  std::int64_t packed = 0;  // bytes in the zip file
  std::int64_t size = 0;    // bytes when inflated
  std::int64_t header = 0;  // offset of the member's own header
};

/// The end records of a zip file are always within this many bytes of its end.
inline constexpr std::int64_t kZipEnd = 65535 + 22 + 20 + 56;

/// Finds the directory. `tail` holds the last `kZipEnd` bytes of the file, or all of a
/// shorter file; `size` is the size of the file. Throws `DataError` if there is no
/// directory.
ZipDirectory find_zip_directory(std::span<const std::byte> tail,
                                const std::string& name, std::int64_t size);

/// Parses the directory that `reader` holds. Returns all members, readable or not.
std::vector<ZipMember> parse_zip_directory(ByteReader& reader,
                                           const ZipDirectory& directory);

/// The length of the longest member header.
inline constexpr std::int64_t kZipMemberHeader = 30 + 65535 + 65535;

/// Returns the offset of a member's data in its file of `size` bytes. `reader` holds
/// the member's header. Throws `DataError` for an encrypted member, for a method other
/// than stored and deflated, and if the file ends before the data does.
std::int64_t zip_member_data(ByteReader& reader, const ZipMember& member,
                             std::int64_t size);

}  // namespace millstream
