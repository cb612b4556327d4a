#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "millstream/io/byte_reader.h"

namespace millstream {

inline constexpr std::int64_t kTarBlock = 512;

/// One entry of a tar file. Its data follows its header and is padded to whole blocks.
struct TarEntry {
  std::string name;
  bool is_file = false;  // a regular file, not a folder, a link etc.
  std::int64_t size = 0;
};

/// Parses the header block that `reader` holds. Returns nothing for a block of
/// zeros, which ends the archive. Throws `DataError` if the checksum is wrong.
std::optional<TarEntry> parse_tar_header(ByteReader& reader);

}  // namespace millstream
