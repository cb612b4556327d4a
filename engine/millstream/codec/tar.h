#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "millstream/io/byte_reader.h"

namespace millstream {

inline constexpr std::int64_t kTarBlock = 512;

/// One entry of a tar file, whose data follows its header and is padded to whole
/// blocks.
struct TarEntry {
  std::string name;
  bool is_file = false;  // a plain one; else a folder, a link, a long name and so on
  std::int64_t size = 0;
};

/// Reads the header of one block that `reader` holds, or nothing from an empty block,
/// which ends the file. Throws `DataError` where the check sum is wrong.
std::optional<TarEntry> parse_tar_header(ByteReader& reader);

}  // namespace millstream
