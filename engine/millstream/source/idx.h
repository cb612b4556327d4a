#pragma once

#include <filesystem>
#include <vector>

#include "millstream/source/columns.h"

namespace millstream {

/// Samples whose fields are IDX files (the format of MNIST). Uncompressed files are
/// memory-mapped; gzip files are unpacked once into `cache`. Throws `DataError` for
/// damaged files and for fields with different numbers of rows. Throws `ArgumentError`
/// if a file is compressed and `cache` is empty.
ColumnsSource idx_source(const std::vector<FieldFiles>& fields,
                         const std::filesystem::path& cache = {});

}  // namespace millstream
