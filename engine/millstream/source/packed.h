#pragma once

#include <filesystem>

#include "millstream/source/columns.h"

namespace millstream {

/// Samples of a fixed size in one file that `write_packed` wrote. Throws `DataError` if
/// the file is damaged.
ColumnsSource packed_source(const std::filesystem::path& path);

/// Reads a file without a header that holds records of `schema` from `offset` on.
/// Throws `DataError` unless the file ends with a whole record.
ColumnsSource packed_source(const std::filesystem::path& path, const Schema& schema,
                            std::int64_t offset = 0);

}  // namespace millstream
