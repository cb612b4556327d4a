#include "millstream/source/csv.h"

#include <memory>
#include <utility>

#include "millstream/io/file.h"

namespace millstream {
namespace {

std::vector<Array> csv_arrays(const std::filesystem::path& path,
                              const CsvFormat& format) {
  const File file(path);
  const auto table = std::make_shared<const CsvTable>(
      parse_csv(file.bytes(0, file.size()), path.string(), format));
  std::vector<Array> arrays;
  for (const CsvColumn& column : table->columns) {
    arrays.push_back({{column.name, column.dtype, {}},
                      table->rows,
                      column.data(),
                      byte_size(column.dtype),
                      table});
  }
  return arrays;
}

}  // namespace

CsvSource::CsvSource(const std::filesystem::path& path, const CsvFormat& format)
    : arrays_(csv_arrays(path, format)) {}

}  // namespace millstream
