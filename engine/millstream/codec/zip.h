#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "millstream/io/byte_reader.h"

namespace millstream {

/// Where the directory of a zip file lies.
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
  std::uint16_t method = 0;  // kZipStored, kZipDeflated or one that cannot be read
  std::uint32_t crc = 0;
  std::int64_t packed = 0;  // bytes in the zip file
  std::int64_t size = 0;    // bytes in themselves
  std::int64_t header = 0;  // offset of the member's own header
};

/// The end of a zip file that is enough to find its directory.
inline constexpr std::int64_t kZipEnd = 65535 + 22 + 20 + 56;

/// Finds the directory from the last bytes of the file, at least `kZipEnd` of them or
/// all. Throws `DataError` where there is none.
ZipDirectory find_zip_directory(std::span<const std::byte> tail,
                                const std::string& name, std::int64_t size);

/// The members in the directory that `reader` holds, of any kind.
std::vector<ZipMember> parse_zip_directory(ByteReader& reader,
                                           const ZipDirectory& directory);

/// Bytes that hold every member's own header.
inline constexpr std::int64_t kZipMemberHeader = 30 + 65535 + 65535;

/// The offset of a member's data in its file of `size` bytes, in which it lies whole;
/// `reader` holds the member's header. Throws `DataError` for encrypted members and
/// methods other than stored and deflated.
std::int64_t zip_member_data(ByteReader& reader, const ZipMember& member,
                             std::int64_t size);

}  // namespace millstream
