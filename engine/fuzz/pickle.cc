#include "millstream/codec/pickle.h"

#include "input.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace millstream;
  return accept_or_refuse([&] {
    ByteReader reader(fuzzed(data, size), "fuzzed");
    const Pickle pickle(reader);
    const auto* begin = reinterpret_cast<const char*>(data);
    for (const std::uint32_t item : pickle.root().items) {
      const std::string_view bytes = pickle[item].bytes;
      require(bytes.empty() ||
              (bytes.data() >= begin && bytes.data() + bytes.size() <= begin + size));
    }
    pickle.find(pickle.root(), "data");
    if (pickle.root().is_latin1) {
      require(latin1_bytes(pickle.root(), reader).size() <= pickle.root().bytes.size());
    }
  });
}
