#include "millstream/source/csv.h"

#include <memory>
#include <utility>

#include "millstream/io/file.h"

namespace millstream {

ArraysSource csv_source(const std::filesystem::path& path, const CsvFormat& format) {
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
  return ArraysSource(std::move(arrays));
}

}  // namespace millstream
