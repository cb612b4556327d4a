#pragma once

#include <filesystem>

#include "millstream/source/columns.h"

namespace millstream {

/// Samples of one fixed size, back to back in a single file that describes itself, as
/// `write_packed` writes it. Throws `DataError` for a damaged one.
ColumnsSource packed_source(const std::filesystem::path& path);

/// The same for a file of nothing but records of `schema`, from `offset` on. Throws
/// `DataError` unless they fill it.
ColumnsSource packed_source(const std::filesystem::path& path, const Schema& schema,
                            std::int64_t offset = 0);

}  // namespace millstream
